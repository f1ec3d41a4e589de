package nexmark_test

import (
	"strings"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// located is a bid with the folders of its address.
type located struct {
	Auction, Bidder, Price int64
	Channel                string
	Folders                [3]string
}

func locate(b nexmark.Bid) located {
	parts := strings.SplitN(b.URL, "/", 7) // "https:", "", the host, the folders, the page
	return located{b.Auction, b.Bidder, b.Price, b.Channel, [3]string(parts[3:6])}
}

var locatedBids = topic.New[int64, located]("q22-folders").Partitions(2).ValueCodec(codec.Struct[located]())

// Query 22 splits the address of each bid.
var q22 = query[located]{
	name: "q22",
	pipeline: func(events input) {
		events.Via(bids).Map(locate).To(locatedBids)
	},
	rows: values(locatedBids),
	answer: func(events []nexmark.Event) (all []located) {
		for b := range onlyBids(events) {
			path := strings.TrimPrefix(b.URL, "https://www.nexmark.com/")
			first, path, _ := strings.Cut(path, "/")
			second, path, _ := strings.Cut(path, "/")
			third, _, _ := strings.Cut(path, "/")
			all = append(all, located{b.Auction, b.Bidder, b.Price, b.Channel, [3]string{first, second, third}})
		}
		return all
	},
	figures: func(rows []located) []int64 {
		folders := map[[3]string]bool{}
		for _, r := range rows {
			folders[r.Folders] = true
		}
		return []int64{int64(len(folders))}
	},
	million: []int64{920_000, 10_004},
}
