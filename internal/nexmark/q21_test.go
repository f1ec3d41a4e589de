package nexmark_test

import (
	"regexp"
	"strings"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// channeled is a bid with the number of its channel.
type channeled struct {
	Auction, Bidder, Price int64
	Channel, ChannelID     string
}

var channelInURL = regexp.MustCompile(`(?:&|^)channel_id=([^&]*)`)

// withChannel finds the number of the channel; it stays empty where there is none.
func withChannel(b nexmark.Bid) channeled {
	c := channeled{b.Auction, b.Bidder, b.Price, b.Channel, ""}
	switch strings.ToLower(b.Channel) {
	case "apple":
		c.ChannelID = "0"
	case "google":
		c.ChannelID = "1"
	case "facebook":
		c.ChannelID = "2"
	case "baidu":
		c.ChannelID = "3"
	default:
		if found := channelInURL.FindStringSubmatch(b.URL); found != nil {
			c.ChannelID = found[1]
		}
	}
	return c
}

var channeledBids = topic.New[int64, channeled]("q21-channels").Partitions(2).ValueCodec(codec.Struct[channeled]())

// Query 21 adds the number of the channel, known or in the bid's address, and drops the
// bids without one.
var q21 = query[channeled]{
	name: "q21",
	pipeline: func(events input) {
		events.Via(bids).
			Map(withChannel).
			Filter(func(c channeled) bool { return c.ChannelID != "" }).
			To(channeledBids)
	},
	rows: values(channeledBids),
	answer: func(events []nexmark.Event) (all []channeled) {
		known := map[string]string{"Apple": "0", "Google": "1", "Facebook": "2", "Baidu": "3"}
		for b := range onlyBids(events) {
			id, ok := known[b.Channel]
			if !ok {
				_, id, ok = strings.Cut(b.URL, "&channel_id=") // it ends the address
			}
			if ok {
				all = append(all, channeled{b.Auction, b.Bidder, b.Price, b.Channel, id})
			}
		}
		return all
	},
	million: []int64{871_395},
}
