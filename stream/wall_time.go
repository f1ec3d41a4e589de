package stream

import (
	"encoding/binary"
	"errors"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// byWall makes the port of windows that go by event time one of windows that go by the node's
// clock: a record is in those of the time at which it is processed, and what closes them is the
// clock, which here never goes back and is part of the checkpoint. Of event time only its end
// counts: nothing is to come. next tells when a window closes, if any is open.
func byWall[V any](o *opening, s *step, p engine.KeyedPort[V], next func() (ms int64, ok bool)) engine.KeyedPort[V] {
	t, now := o.task, window.Unknown
	t.AddClock(engine.ClockOf+s.name,
		func(b []byte) []byte { return binary.AppendVarint(b, now) },
		func(b []byte) error {
			r := numbers{src: b}
			if now = r.varint(); r.damaged || len(r.src) > 0 {
				return errWallTime
			}
			return nil
		},
		func() {})
	tick := func() {
		if ms := t.Now().UnixMilli(); ms > now {
			now = ms
			p.Watermark(now)
		}
	}
	t.OnTime(next, func(int64) { tick() })
	out := p
	out.Push = func(m *engine.Meta, hash uint64, key []byte, v *V) {
		tick()
		time, tooFar := m.Time, m.TooFar
		m.Time, m.TooFar = now, false
		p.Push(m, hash, key, v)
		m.Time, m.TooFar = time, tooFar
	}
	out.Watermark = func(w int64) {
		if w == window.EndOfTime {
			p.Watermark(w)
		}
	}
	return out
}

var errWallTime = errors.New("stream: damaged clock of windows in the checkpoint")
