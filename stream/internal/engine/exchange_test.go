package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
)

// Records that go through an exchange, with values and watermarks, and the batches
// they are in, allocate nothing once batches have been made.
func TestExchangeAllocatesNothing(t *testing.T) {
	job := &Job{done: make(chan struct{})}
	sending, receiving := newTask(job, checkpoint.TaskID{Stage: "sending"}, false), newTask(job, checkpoint.TaskID{Stage: "receiving"}, false)
	x := NewExchange[[4]int64](ExchangeOptions{Senders: 1, Receivers: 2, KeepValue: true})
	s := x.OpenSender(sending, 0)
	for _, l := range x.lanes[0] {
		l.receiver = receiving
	}
	var meta, got Meta
	value := [4]int64{1, 2, 3, 4}
	key := []byte("some key of 00 bytes")
	sent, received := 0, 0
	round := func() {
		for range 10 * batchRecords {
			sent++
			key[12], key[13] = byte(sent), byte(sent>>8)
			meta.Time, meta.Offset = int64(sent), int64(sent)
			if sent%100 == 0 {
				s.Watermark(int64(sent))
			}
			s.Send(&meta, key, &value)
			for _, l := range x.lanes[0] {
				b := l.receive()
				if b == nil {
					continue
				}
				for i := range b.records {
					b.describe(i, &got)
					if *b.value(i, new([4]int64)) == value && got.Offset == got.Time {
						received++
					}
				}
				l.giveBack(b)
			}
		}
	}
	round()
	require.Zero(t, testing.AllocsPerRun(20, round))
	require.Greater(t, received, sent-2*batchRecords, "what is not in a full batch is not sent yet")
}
