package nexmark_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// enriched is a bid with what a table of 10,000 rows says for its auction.
type enriched struct {
	Bid   nexmark.Bid
	Value string
}

// sideRows is the size of the table. Its row of key k says sideValue(k).
const sideRows = 10_000

func sideValue(key int64) string { return fmt.Sprint("value of ", key) }

var (
	side         = topic.New[int64, string]("q13-side").Compact()
	enrichedBids = topic.New[int64, enriched]("q13-bids").Partitions(2).ValueCodec(codec.Struct[enriched]())
)

// fillSide writes the table.
func fillSide(t testing.TB, n *thalweg.Node) {
	p, err := n.Producer(side)
	require.NoError(t, err)
	for key := range int64(sideRows) {
		require.NoError(t, p.Queue(t.Context(), key, sideValue(key)))
	}
	require.NoError(t, p.Close())
}

// Query 13 joins each bid with a row of a bounded table.
var q13 = query[enriched]{
	name: "q13",
	pipeline: func(events input) {
		table := events.app.GlobalTable(side)
		events.Via(bids).
			JoinGlobal(table,
				func(b nexmark.Bid) int64 { return b.Auction % sideRows },
				func(b nexmark.Bid, value string) enriched { return enriched{b, value} }).
			As("q13-join").
			To(enrichedBids)
	},
	rows: values(enrichedBids),
	answer: func(events []nexmark.Event) (all []enriched) {
		var side []string
		for key := range int64(sideRows) {
			side = append(side, sideValue(key))
		}
		for b := range onlyBids(events) {
			all = append(all, enriched{b, side[b.Auction%sideRows]})
		}
		return all
	},
	million: []int64{920_000},
}
