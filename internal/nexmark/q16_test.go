package nexmark_test

import (
	"time"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// channelTraffic is what happened in a day on a channel, and the last minute in which
// something did, such as "00:01".
type channelTraffic struct {
	Channel string
	Minute  string
	Traffic traffic
}

func (c channelTraffic) plus(o channelTraffic) channelTraffic {
	return channelTraffic{o.Channel, max(c.Minute, o.Minute), c.Traffic.plus(o.Traffic)}
}

// onChannel is a bidder or an auction, as far as a channel goes.
type onChannel struct {
	Channel string
	ID      int64
}

// channelBids is what one of them did.
type channelBids struct {
	Minute string
	Bids   tally
}

func (c channelBids) add(b nexmark.Bid) channelBids {
	return channelBids{max(c.Minute, minuteOf(b)), c.Bids.addBid(b)}
}

func minuteOf(b nexmark.Bid) string { return time.UnixMilli(b.DateTime).UTC().Format("15:04") }

var traffics = topic.New[window.Key[string], channelTraffic]("q16-traffic").ValueCodec(codec.Struct[channelTraffic]())

// Query 16 is query 15 for each channel, with the last minute it was used.
var q16 = query[channelTraffic]{
	name: "q16",
	pipeline: func(events input) {
		day := window.Tumbling(24 * time.Hour)
		byBidder := events.Via(bids).
			GroupBy(func(b nexmark.Bid) onChannel { return onChannel{b.Channel, b.Bidder} }).
			Window(day).
			Aggregate(channelBids.add).
			As("q16-bidders").
			ToStream().
			MapKV(func(w window.Key[onChannel], c channelBids) channelTraffic {
				return channelTraffic{w.Key.Channel, c.Minute, traffic{Day: w.Start.UnixMilli(), Bids: c.Bids, Bidders: c.Bids.once()}}
			})
		byAuction := events.Via(bids).
			GroupBy(func(b nexmark.Bid) onChannel { return onChannel{b.Channel, b.Auction} }).
			Window(day).
			Aggregate(channelBids.add).
			As("q16-auctions").
			ToStream().
			MapKV(func(w window.Key[onChannel], c channelBids) channelTraffic {
				return channelTraffic{w.Key.Channel, c.Minute, traffic{Day: w.Start.UnixMilli(), Auctions: c.Bids.once()}}
			})
		byBidder.Merge(byAuction).
			GroupBy(func(c channelTraffic) string { return c.Channel }).
			Window(day).
			Reduce(channelTraffic.plus).
			As("q16-traffic").
			To(traffics)
	},
	rows: values(traffics),
	answer: func(events []nexmark.Event) (all []channelTraffic) {
		type channelDay struct {
			channel string
			day     int64
		}
		of := func(b nexmark.Bid) channelDay { return channelDay{b.Channel, windowStart(b.DateTime, oneDay)} }
		last := map[channelDay]int64{}
		for b := range onlyBids(events) {
			last[of(b)] = max(last[of(b)], b.DateTime)
		}
		for k, t := range trafficBy(events, of) {
			all = append(all, channelTraffic{k.channel, time.UnixMilli(last[k]).UTC().Format("15:04"), t})
		}
		return all
	},
	million: []int64{10_004},
}
