package stream

import (
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// storedPiles is a table of sliding windows, whose records are in piles. A window that is open
// has a timer for its end; its row is folded when it is read.
type storedPiles[K any, WK window.KeyOf[K], V, A any] struct {
	spec          window.Spec
	pileMs        int64
	rowKey        codec.Codec[WK]
	key           codec.Codec[K]
	piles, timers *storeDecl
	pile          codec.Codec[pile[V]]
	fold          fold[A, V]
	step          *step
}

func (s storedPiles[K, WK, V, A]) stored() *stored[WK, A] {
	s.piles.readBy(s.pile)
	return &stored[WK, A]{
		decls: []*storeDecl{s.piles, s.timers}, sorted: true,
		stateKey: func(WK) ([]byte, error) { return nil, nil }, // it takes more than one
		owner:    s.owner, get: s.get, walk: s.walk, madeOf: s.madeOf,
	}
}

func (s storedPiles[K, WK, V, A]) owner(wk WK) ([]byte, error) {
	return s.key.Append(nil, window.Key[K](wk).Key)
}

// records are those of a key with times in [from, to], in their order.
func (s storedPiles[K, WK, V, A]) records(in stores, key []byte, from, to int64) (rows []piled[V], err error) {
	for start := range pilesIn(from, to, s.pileMs) {
		encoded, ok, err := in[s.piles].Get(state.AppendWindowKey(nil, start, key))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		p, err := s.pile.Decode(encoded)
		if err != nil {
			return nil, err
		}
		for _, r := range p.rows {
			if r.time >= from && r.time <= to {
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

func (s storedPiles[K, WK, V, A]) get(in stores, wk WK) (r row[A], ok bool, err error) {
	k := window.Key[K](wk)
	start, end := k.Start.UnixMilli(), k.End.UnixMilli()
	if end != s.spec.End(start) {
		return r, false, nil // no such window
	}
	key, err := s.owner(wk)
	if err != nil {
		return r, false, err
	}
	tags, ok, err := in[s.timers].Get(state.AppendTimerKey(nil, eventQueue, s.spec.ClosesAt(start), state.AppendWindowKey(nil, start, key)))
	if ok && err == nil {
		ok, err = state.TimerHas(tags, closeTag)
	}
	if err != nil || !ok {
		return r, false, err
	}
	return s.folded(in, key, start)
}

// folded is the row of a window that is open; ok is false where it holds nothing. Records for which
// the fold fails are left out, where the policy of the step says so.
func (s storedPiles[K, WK, V, A]) folded(in stores, key []byte, start int64) (r row[A], ok bool, err error) {
	skips := s.step.policy().verdict != verdictFail
	failed := make(map[int]bool)
	for {
		rows, err := s.records(in, key, start, s.spec.End(start))
		if err != nil || len(rows) == 0 {
			return r, false, err
		}
		r, ok = row[A]{time: rows[len(rows)-1].time}, false
		at := 0
		fold := func() error {
			for at = range rows {
				if !failed[at] {
					s.fold(&r.value, !ok, &rows[at].value)
					ok = true
				}
			}
			return nil
		}
		if !skips {
			return r, ok, fold()
		}
		if safely(fold) == nil {
			return r, ok, nil
		}
		failed[at] = true // and the others anew: what it has changed before it failed is not known
	}
}

func (s storedPiles[K, WK, V, A]) walk(in stores, within bounded[WK]) iter.Seq2[storedRow[A], error] {
	lo, hi := state.AppendTimerKey(nil, eventQueue, window.Unknown, nil), []byte{eventQueue + 1}
	if within.first != nil {
		lo = state.AppendTimerKey(nil, eventQueue, s.spec.ClosesAt(window.Key[K](*within.first).Start.UnixMilli()), nil)
	}
	if within.last != nil {
		hi = state.AppendTimerKey(nil, eventQueue, plus(s.spec.ClosesAt(window.Key[K](*within.last).Start.UnixMilli()), 1), nil)
	}
	return func(yield func(storedRow[A], error) bool) {
		for e, err := range in[s.timers].Range(lo, hi) {
			made, ok := storedRow[A]{}, err == nil
			if err == nil {
				ok, err = state.TimerHas(e.Value, closeTag)
			}
			if ok && err == nil {
				made, ok, err = s.rowOf(in, e.Key, within)
			}
			if (ok || err != nil) && !yield(made, err) || err != nil {
				return
			}
		}
	}
}

// rowOf is the row of the window that a timer is for; ok is false where there is none.
func (s storedPiles[K, WK, V, A]) rowOf(in stores, timer []byte, within bounded[WK]) (made storedRow[A], ok bool, err error) {
	wk, key, start, err := s.windowOf(timer)
	if err != nil {
		return made, false, err
	}
	if made.key, err = s.rowKey.Append(nil, wk); err != nil || !within.has(made.key) {
		return made, false, err
	}
	made.row, ok, err = s.folded(in, key, start)
	return made, ok, err
}

// windowOf is the window that a timer is for.
func (s storedPiles[K, WK, V, A]) windowOf(timer []byte) (wk WK, key []byte, start int64, err error) {
	_, _, windowKey, err := state.SplitTimerKey(timer)
	if err == nil {
		start, key, err = state.SplitWindowKey(windowKey)
	}
	if err == nil {
		wk, err = windowOf[K, WK](s.key, s.spec)(windowKey)
	}
	return wk, key, start, err
}

// madeOf are the window of a timer, and those that records in a pile make or are in.
func (s storedPiles[K, WK, V, A]) madeOf(in stores, d *storeDecl, stateKey []byte) (keys []WK, err error) {
	if d == s.timers {
		wk, _, _, err := s.windowOf(stateKey)
		return []WK{wk}, err
	}
	from, key, err := state.SplitWindowKey(stateKey)
	if err != nil {
		return nil, err
	}
	k, err := s.key.Decode(key)
	if err != nil {
		return nil, fmt.Errorf("decode key: %w", err)
	}
	to, size := plus(from, s.pileMs-1), s.spec.SizeMs()
	rows, err := s.records(in, key, plus(from, -size-1), plus(to, size))
	var starts []int64
	for _, r := range rows {
		for _, start := range [...]int64{s.spec.First(r.time), plus(r.time, 1)} {
			if start <= to && s.spec.End(start) >= from && !slices.Contains(starts, start) {
				starts = append(starts, start)
				keys = append(keys, WK(spanOf(k, start, s.spec.End(start))))
			}
		}
	}
	return keys, err
}
