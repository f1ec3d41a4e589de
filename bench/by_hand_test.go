package bench

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// byHand is the floor of the pipelines: one loop over all partitions in turn that decodes
// the same, counts in a Go map, writes changed counts to a changelog every 100 ms and each
// closed minute's counts to an output topic, as a program without a library would that
// keeps its state in memory.
type byHand struct {
	took   time.Duration
	stall  time.Duration // the longest time between two batches that it read
	counts digest
}

// byHandOver runs the loop over an input.
func byHandOver(b *testing.B, n *thalweg.Node, in input) (hand byHand) {
	b.Helper()
	in = in.withDefaults()
	for _, name := range []string{"by-hand-changelog", "by-hand-output"} {
		if err := n.Create(b.Context(), topic.New[string, []byte](name)); err != nil {
			b.Fatal(err)
		}
	}
	changelog, output := partitionOf(b, n, "by-hand-changelog", 0), partitionOf(b, n, "by-hand-output", 0)
	var changes, results log.BatchBuilder
	write := func(p *log.Partition, builder *log.BatchBuilder, least int) {
		if builder.Len() > 0 && builder.Size() >= least {
			if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
				b.Fatal(err)
			}
			builder.Reset()
		}
	}
	type count struct {
		n       int64
		minute  int64
		user    user
		changed bool
	}
	windows := make(map[int64]map[user]*count)
	var changed []*count
	key, value := make([]byte, 0, 32), make([]byte, 0, 16)
	encode := func(c *count) {
		key = append(binary.BigEndian.AppendUint64(key[:0], uint64(c.minute*60_000)), c.user[:]...)
		value, _ = codec.Int64.Append(value[:0], c.n)
	}
	commit := func() {
		for _, c := range changed {
			encode(c)
			changes.Add(0, key, value, nil)
			write(changelog, &changes, 1<<20)
			c.changed = false
		}
		changed = changed[:0]
		write(changelog, &changes, 0)
		write(output, &results, 0)
	}
	closeBefore := func(minute int64) {
		commit() // what is closed is in the changelog
		for m, counts := range windows {
			if m >= minute {
				continue
			}
			for _, c := range counts {
				encode(c)
				results.Add(0, key, value, nil)
				write(output, &results, 256<<10)
				changes.Add(0, key, nil, nil)
				write(changelog, &changes, 1<<20)
			}
			delete(windows, m)
		}
	}

	start := time.Now()
	last, open0, rested := start, int64(0), start
	var readers []*log.Reader
	for p := range in.partitions {
		readers = append(readers, partitionOf(b, n, in.name(), p).Reader(0, log.ReadCommitted))
	}
	for done := 0; done < len(readers); {
		done = 0
		var newest int64
		for _, r := range readers {
			batch, err := r.Next()
			if errors.Is(err, io.EOF) {
				done++
				continue
			}
			if err != nil {
				b.Fatal(err)
			}
			it := batch.Records()
			for it.Next() {
				var e event
				if in.keyed {
					e.User = user(it.Key)
					err = decodeRest(it.Value, &e)
				} else {
					e, err = decodeEvent(it.Value)
				}
				if err != nil {
					b.Fatal(err)
				}
				if e.Bot {
					continue
				}
				e.Cents *= 2
				minute := it.Time / 60_000
				counts := windows[minute]
				if counts == nil {
					counts = make(map[user]*count)
					windows[minute] = counts
				}
				c := counts[e.User]
				if c == nil {
					c = &count{minute: minute, user: e.User}
					counts[e.User] = c
				}
				c.n++
				if !c.changed {
					c.changed = true
					changed = append(changed, c)
				}
				newest = max(newest, minute)
			}
		}
		if newest > open0 {
			closeBefore(newest)
			open0 = newest
		}
		now := time.Now()
		if now.Sub(last) >= 100*time.Millisecond {
			commit()
			last = now
			now = time.Now()
		}
		hand.stall = max(hand.stall, now.Sub(rested))
		rested = now
	}
	closeBefore(1 << 62)
	commit()
	hand.took = time.Since(start)
	for _, r := range readers {
		r.Close()
	}
	hand.counts = digestOf(b, n, "by-hand-output", 1)
	return hand
}
