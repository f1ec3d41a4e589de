package nexmark_test

import (
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/nexmark"
)

// The events of the standard seed are these bytes: the sums come from two other
// programs.
func TestEventsAreTheseBytes(t *testing.T) {
	type sums struct {
		persons, auctions, bids int
		bytes                   int64
		crc                     string
		prices                  int64
	}
	for n, want := range map[int64]sums{
		100_000:   {2_000, 6_000, 92_000, 19_587_604, "5e6324de", 672_395_002_949},
		1_000_000: {20_000, 60_000, 920_000, 197_249_466, "94e7f3d0", 6_671_986_643_801},
	} {
		var got sums
		crc := crc32.NewIEEE()
		var line []byte
		for _, e := range nexmark.New(nexmark.Options{}).Events(0, n) {
			line = e.AppendLine(line[:0])
			got.bytes += int64(len(line))
			crc.Write(line)
			switch {
			case e.Person != nil:
				got.persons++
			case e.Auction != nil:
				got.auctions++
			default:
				got.bids++
				got.prices += e.Bid.Price
			}
		}
		got.crc = fmt.Sprintf("%08x", crc.Sum32())
		require.Equal(t, want, got, "of %d events", n)
	}
}

func TestFirstEvents(t *testing.T) {
	g := nexmark.New(nexmark.Options{})
	p := g.Event(0).Person
	require.Equal(t, []any{int64(1000), "Kate Abrams", "gd@txab.com", "OR"}, []any{p.ID, p.Name, p.EmailAddress, p.State})
	require.Equal(t, time.Date(2015, time.July, 15, 0, 0, 0, 0, time.UTC), g.Event(0).Time())
	b := g.Event(4).Bid
	require.Equal(t, []any{int64(1006), int64(1006), int64(824169), "Facebook"}, []any{b.Auction, b.Bidder, b.Price, b.Channel})
	require.Equal(t, int64(1000), g.Event(1).Auction.ID)
	require.Equal(t, int64(1003), g.Event(51).Auction.ID)
}

// A group size changes the order in which events come, within a group, and nothing
// else; no event is older than the watermark before it.
func TestOutOfOrderPermutesGroups(t *testing.T) {
	inOrder := nexmark.New(nexmark.Options{})
	for _, group := range []int64{3, 10, 1000} {
		g := nexmark.New(nexmark.Options{OutOfOrder: group})
		moved := 0
		for start := int64(0); start < 3*group; start += group {
			var want, got []string
			for n, e := range g.Events(start, start+group) {
				got = append(got, string(e.AppendLine(nil)))
				want = append(want, string(inOrder.Event(n).AppendLine(nil)))
				if got[len(got)-1] != want[len(want)-1] {
					moved++
				}
				require.GreaterOrEqual(t, e.Time().UnixMilli(), g.Watermark(max(n-1, 0)))
				require.LessOrEqual(t, g.Watermark(n), e.Time().UnixMilli())
			}
			slices.Sort(want)
			slices.Sort(got)
			require.Equal(t, want, got)
		}
		require.Positive(t, moved, "group %d", group)
	}
}

// Another seed gives other events at the same times, another rate the same ones at
// other times.
func TestSeedAndRate(t *testing.T) {
	standard := nexmark.New(nexmark.Options{}).Event(104)
	other := nexmark.New(nexmark.Options{Seed: 7}).Event(104)
	require.Equal(t, standard.Time(), other.Time())
	require.NotEqual(t, standard.Bid.Price, other.Bid.Price)

	slow := nexmark.New(nexmark.Options{EventsPerSecond: 3}).Event(104)
	require.Equal(t, nexmark.Start+34_666, slow.Bid.DateTime)
	slow.Bid.DateTime = standard.Bid.DateTime
	require.Equal(t, standard, slow)
}

// An event costs its own strings and the struct that holds them, a bid by itself
// nothing.
func TestAllocations(t *testing.T) {
	g := nexmark.New(nexmark.Options{})
	require.Zero(t, testing.AllocsPerRun(100, func() { g.Bid(149) }))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { g.Auction(151) }), 2.0)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { g.Person(150) }), 3.0)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { g.Event(149) }), 1.0)
}

func BenchmarkGenerator(b *testing.B) {
	g := nexmark.New(nexmark.Options{})
	n := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		g.Event(n)
		n++
	}
}
