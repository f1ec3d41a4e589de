package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// WallTTL lets a row go once nothing has renewed it for d by the node's clock, whatever its
// event time; what reads the table then sees it deleted, at the time of the watermark, or
// of the clock where there is none yet. While the job does not run the clock goes on, and rows
// go when it runs again. A row that a run without WallTTL has made stays until it is
// renewed. d is in whole milliseconds, at least one. TTL and WallTTL may be given together:
// the first that is over counts.
func WallTTL(d time.Duration) Materialize {
	m := Materialize{wall: d}
	if d < time.Millisecond || d%time.Millisecond != 0 {
		m.problem = fmt.Sprintf("WallTTL of %v: use whole milliseconds, at least one", d)
	}
	return m
}

// wallExpiry lets rows go by the node's clock. A row has one timer, at the time when it was
// made and ttl, or later: the timer finds it renewed, and is set again.
type wallExpiry struct {
	ttl     int64 // ms
	timers  *state.TimerQueue
	renewed *state.Table[int64] // when the row of a key was, ms since the epoch
	now     func() time.Time
}

func openWallExpiry(o *opening, k *keeping) *wallExpiry {
	if k.wall == 0 {
		return nil
	}
	due, when := o.openStore(k.wallDue), o.openStore(k.renewed)
	if due == nil || when == nil {
		return nil
	}
	timers := state.NewTimers(due.Store)
	due.SetTable(timers)
	e := &wallExpiry{ttl: k.wall.Milliseconds(), timers: timers.Queue(1), now: o.task.Now}
	e.renewed = state.NewTable[int64](when.Store, codec.Int64)
	when.SetTable(e.renewed)
	return e
}

// renew notes that the row of a key is made or changed now.
func (e *wallExpiry) renew(hash uint64, key []byte) error {
	at, existed, err := e.renewed.Update(hash, key)
	if err != nil {
		return err
	}
	*at = e.now().UnixMilli()
	if existed {
		return nil
	}
	return e.timers.Add(later(*at, e.ttl), key, 0)
}

// forget notes that the row of a key is gone. Its timer finds nothing.
func (e *wallExpiry) forget(hash uint64, key []byte) error { return e.renewed.Delete(hash, key) }

// nextWall is when the next row may be over.
func (r *kept[K, V, A]) nextWall() (ms int64, ok bool) {
	ms, ok, err := r.wall.timers.Next()
	r.t.Fail(r.step, err)
	return ms, ok
}

// ringWall lets go the rows that are over at time now of the clock.
func (r *kept[K, V, A]) ringWall(now int64) {
	err := r.wall.timers.Pop(now, func(at int64, encoded []byte, _ uint8) error {
		hash := state.Hash(encoded)
		renewed, ok, err := r.wall.renewed.Get(hash, encoded)
		if err != nil || !ok {
			return err
		}
		if over := later(*renewed, r.wall.ttl); over > at {
			return r.wall.timers.Add(over, encoded, 0)
		}
		c, ok, err := r.table.Get(hash, encoded)
		if err != nil || !ok {
			return err
		}
		if r.w != window.Unknown {
			at = r.w
		}
		return r.drop(hash, encoded, c, at)
	})
	r.t.Fail(r.step, err)
}
