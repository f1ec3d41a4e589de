package state

import (
	"bytes"
	"sort"
)

// Scan calls f for every key in [lo, hi), ascending, with its live value, until f returns
// false; a nil lo means from the first key, a nil hi to the last. f may call the other
// methods of the table: a key that it adds may come or not, one that it deletes comes
// no more. key and v are valid until f returns or calls the table; v may be read only.
//
// Scan looks at all that is in memory, besides what is in the range.
func (t *Table[V]) Scan(lo, hi []byte, f func(key []byte, v *V) bool) error {
	return t.scan(lo, hi, func(key []byte, e *entry) bool { return f(key, valueOf[V](e)) })
}

func (t *table) scan(lo, hi []byte, f func(key []byte, e *entry) bool) error {
	if t.live.err != nil {
		return t.live.err
	}
	o := &t.overlay
	var live []uint32
	for id := range o.next {
		e := o.at(id)
		if e.flags&(flagOccupied|flagDeleted) != flagOccupied {
			continue
		}
		if key := o.key(e); bytes.Compare(key, lo) >= 0 && (hi == nil || bytes.Compare(key, hi) < 0) {
			live = append(live, id)
		}
	}
	sort.Slice(live, func(i, j int) bool { return bytes.Compare(o.key(o.at(live[i])), o.key(o.at(live[j]))) < 0 })
	// give hands over an entry of the overlay, unless it was deleted meanwhile.
	give := func(id uint32) bool {
		e := o.at(id)
		return e.flags&flagDeleted != 0 || f(o.key(e), e)
	}
	if !t.complete {
		spare := (*entry)(t.live.values.alloc(1, nil, 0)) // for what is only in the store
		for s, err := range t.live.store.Range(lo, hi) {
			if err != nil {
				return err
			}
			for len(live) > 0 && bytes.Compare(o.key(o.at(live[0])), s.Key) < 0 {
				if !give(live[0]) {
					return nil
				}
				live = live[1:]
			}
			if id, e := o.find(Hash(s.Key), s.Key); e != nil {
				if len(live) > 0 && live[0] == id {
					live = live[1:]
				}
				if !give(id) {
					return nil
				}
				continue
			}
			if err := t.live.decode(spare, s.Key, s.Value); err != nil {
				return err
			}
			if !f(s.Key, spare) {
				return nil
			}
		}
	}
	for _, id := range live {
		if !give(id) {
			break
		}
	}
	return nil
}
