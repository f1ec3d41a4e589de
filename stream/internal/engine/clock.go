package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/thalweg/thalweg/window"
)

// Clock makes the watermark of a source partition, or of a stream with an event
// time of its own, from its records. Its watermark never goes back, also when a new
// run has another strategy than the one that saved it.
type Clock struct {
	records   window.Generator
	watermark int64
}

// NewClock returns a clock whose watermark stays bound ms behind the newest time.
func NewClock(bound int64) *Clock { return NewClockBy(&window.BoundedDisorder{Bound: bound}) }

// NewClockBy returns a clock whose watermark records says.
func NewClockBy(records window.Generator) *Clock {
	return &Clock{records: records, watermark: window.Unknown}
}

// Observe takes the event time of the next record.
func (c *Clock) Observe(t int64) (w int64, moved bool) {
	if w, moved = c.records.Observe(t); moved {
		moved = c.Advance(min(w, window.EndOfTime-1)) // no record can end time
	}
	return c.watermark, moved
}

// Punctuate takes a watermark that a record says. Only that of a window.Punctuation
// moves so.
func (c *Clock) Punctuate(w int64) (now int64, moved bool) {
	if p, ok := c.records.(*window.Punctuation); ok {
		if w, moved = p.Punctuate(w); moved {
			moved = c.Advance(w)
		}
	}
	return c.watermark, moved
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
	t.AddClock(name, c.save, c.restore,
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

// The state of a clock in a checkpoint. That of bounded disorder ends behind the watermark,
// which says all there is to say.
//
//	8 bytes  watermark, big-endian
//	uvarint  length of the generator's type, type, as Go prints it
//	rest     its state
func (c *Clock) save(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(c.watermark))
	if _, ok := c.records.(*window.BoundedDisorder); ok {
		return b
	}
	name := fmt.Sprintf("%T", c.records)
	b = binary.AppendUvarint(b, uint64(len(name)))
	return c.records.AppendState(append(b, name...))
}

// restore takes the watermark, and the state of a generator of the same type: one of another
// type begins anew at that watermark.
func (c *Clock) restore(b []byte) error {
	if len(b) < 8 {
		return errClocks
	}
	c.watermark = int64(binary.BigEndian.Uint64(b))
	if b = b[8:]; len(b) == 0 {
		return nil
	}
	name, state, ok := cutBytes(b)
	if !ok {
		return errClocks
	}
	if string(name) != fmt.Sprintf("%T", c.records) {
		return nil
	}
	if _, err := c.records.LoadState(state); err != nil {
		return fmt.Errorf("generator of watermarks %s: %w", name, err)
	}
	return nil
}
