package engine

import (
	"encoding/binary"

	"github.com/thalweg/thalweg/window"
)

// Clock makes the watermark of a source partition, or of a stream with an event
// time of its own, from the times of its records. Its watermark never goes back,
// also when a new run allows more disorder than the one that saved it.
type Clock struct {
	records   window.BoundedDisorder
	watermark int64
}

// NewClock returns a clock whose watermark stays bound ms behind the newest time.
func NewClock(bound int64) *Clock {
	return &Clock{records: window.BoundedDisorder{Bound: bound}, watermark: window.Unknown}
}

// Observe takes the event time of the next record.
func (c *Clock) Observe(t int64) (w int64, moved bool) {
	if w, moved = c.records.Observe(t); moved && w > c.watermark {
		c.watermark = w
		return w, true
	}
	return c.watermark, false
}

// Advance moves the watermark to w, if that is ahead: what it was restored to,
// window.EndOfTime when no record is to come, or what a test says.
func (c *Clock) Advance(w int64) (moved bool) {
	if w <= c.watermark {
		return false
	}
	c.watermark = w
	return true
}

// Watermark is the present watermark, or window.Unknown.
func (c *Clock) Watermark() int64 { return c.watermark }

// Register makes the clock part of the task's checkpoints under a stable name.
// resume tells the operators behind it the restored watermark.
func (c *Clock) Register(t *Task, name string, resume func(w int64)) {
	t.AddClock(name,
		func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(c.watermark)) },
		func(b []byte) error {
			if len(b) != 8 {
				return errClocks
			}
			c.watermark = int64(binary.BigEndian.Uint64(b))
			return nil
		},
		func() {
			if c.watermark != window.Unknown && resume != nil {
				resume(c.watermark)
			}
		})
	t.byHand = append(t.byHand, func(w int64) {
		if c.Advance(w) && resume != nil {
			resume(w)
		}
	})
}
