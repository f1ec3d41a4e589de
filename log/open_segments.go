package log

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// openSegments bounds how many segments of a log are open at a time: mapped, and with
// a descriptor where they are written. When one more is opened, those go that nobody
// has used for longest, about: each segment has a mark that using it sets, and a hand
// goes round, takes marks away, and takes those that have none.
//
// Segments in use are left alone, so more are open where more are in use at once, and no
// longer than that.
type openSegments struct {
	limit int

	exceeded atomic.Bool // n is above limit; stored under mu

	// makingRoom is held while others are closed. It is taken before segment.openMu.
	makingRoom sync.Mutex

	mu     sync.Mutex // guards the fields below; a leaf
	n      int        // open, being opened, and spares
	spares int
	ring   []*segment // the open ones
	hand   int
}

// maxClosing is how many segments that have to be synced before are closed at a time.
// The disk takes as long for several as for one.
const maxClosing = 16

// acquire counts a segment that is about to be opened, and makes room for it. The
// caller holds no segment's openMu.
func (o *openSegments) acquire() {
	if o == nil || o.take() {
		return
	}
	o.makingRoom.Lock()
	defer o.makingRoom.Unlock()
	for !o.take() {
		if !o.closeSome() {
			o.count(1) // all are in use
			return
		}
	}
}

// trim closes segments while there are too many and not all are in use.
func (o *openSegments) trim() {
	if !o.makingRoom.TryLock() {
		return
	}
	defer o.makingRoom.Unlock()
	for o.exceeded.Load() && o.closeSome() {
	}
}

func (o *openSegments) count(more int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += more
	o.exceeded.Store(o.n > o.limit)
}

// take is acquire where there is room.
func (o *openSegments) take() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n >= o.limit {
		return false
	}
	o.n++
	return true
}

// closeSome closes a few segments, so that it is not done for each one again, and tells
// whether there were any.
func (o *openSegments) closeSome() bool {
	idle := o.idle(max(1, o.limit/16))
	var closing errgroup.Group
	closing.SetLimit(maxClosing)
	for _, s := range idle {
		if s.isSynced() {
			s.close()
			continue
		}
		closing.Go(func() error {
			s.close()
			return nil
		})
	}
	_ = closing.Wait()
	return len(idle) > 0
}

// idle returns up to n segments that are not in use.
func (o *openSegments) idle(n int) (found []*segment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 2 * len(o.ring) {
		o.hand = (o.hand + 1) % len(o.ring)
		s := o.ring[o.hand]
		if s.pins.Load() != 0 || s.used.Swap(false) || slices.Contains(found, s) {
			continue
		}
		if found = append(found, s); len(found) == n {
			break
		}
	}
	return found
}

// add puts a segment that is open, and was counted, among those that may be closed.
func (o *openSegments) add(s *segment) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.slot = len(o.ring)
	o.ring = append(o.ring, s)
}

// remove is the opposite of add. The segment is still counted.
func (o *openSegments) remove(s *segment) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	last := o.ring[len(o.ring)-1]
	o.ring[s.slot], last.slot = last, s.slot
	o.ring[len(o.ring)-1] = nil
	o.ring = o.ring[:len(o.ring)-1]
}

// release is the opposite of acquire.
func (o *openSegments) release() {
	if o == nil {
		return
	}
	o.count(-1)
}

// acquireSpare counts a segment as a spare, which it is about to become. Only a quarter
// of what may be open may be spares.
func (o *openSegments) acquireSpare() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spares >= o.limit/4 {
		return false
	}
	o.spares++
	return true
}

// releaseSpare is the opposite of acquireSpare. The file is still counted as open.
func (o *openSegments) releaseSpare() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spares--
}
