package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"sync"
)

// Image is the content of a store at one instant, to be read beside the store while that
// goes on. Its methods may be called concurrently. It is closed before the store's
// database is; a walk that is under way then ends with ErrClosed.
type Image struct {
	store *Store

	// newer are the changes that the store does not have, in ascending order of state
	// key; a nil value is a deletion.
	newer []Entry

	// closed are the encoded starts of the windows whose keys the store has and the table
	// not, but for those in newer.
	closed map[uint64]bool

	mu   sync.Mutex // guards the fields below; held while the database is read
	snap Snapshot
	done bool
}

// Images brings each store to the checkpoint that at gives it, exactly, and returns what
// they hold there. While at is called no store moves, so the checkpoints may be the newest
// that Follow was told of. Callers that ask for several stores name them in the same
// order.
func Images(ctx context.Context, stores []*Store, at func() []Mark) (images []*Image, err error) {
	held := 0
	defer func() {
		for _, s := range stores[:held] {
			s.unlock()
		}
		if err != nil {
			for _, im := range images {
				err = errors.Join(err, im.Close())
			}
			images = nil
		}
	}()
	for _, s := range stores {
		if err := s.lock(ctx); err != nil {
			return nil, err
		}
		held++
	}
	marks := at()
	for i, s := range stores {
		if err := s.stepToLocked(ctx, marks[i]); err != nil {
			return images, err
		}
		im, err := s.image()
		if err != nil {
			return images, err
		}
		images = append(images, im)
	}
	return images, nil
}

// image is what the store's database holds. Between two checkpoints of the store that may be
// some changes of the second.
func (s *Store) image() (*Image, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	snap, err := s.o.DB.Snapshot()
	if err != nil {
		return nil, s.wrap("take a snapshot", err)
	}
	return &Image{store: s, snap: snap}, nil
}

// Close lets go of the image. It may be repeated.
func (im *Image) Close() error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.done {
		return nil
	}
	im.done = true
	return im.snap.Close()
}

// Get returns the encoded value of a state key. The value is the caller's.
func (im *Image) Get(key []byte) (value []byte, ok bool, err error) {
	if i := im.place(key); i < len(im.newer) && bytes.Equal(im.newer[i].Key, key) {
		value := im.newer[i].Value
		return bytes.Clone(value), value != nil, nil
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.done {
		return nil, false, im.store.wrap("read an image", ErrClosed)
	}
	stored := StoredKey(key)
	if im.void(stored) {
		return nil, false, nil
	}
	value, ok, err = im.snap.Get(stored)
	if err == nil && ok {
		value, err = valueBody(value)
	}
	if err != nil {
		return nil, false, im.store.wrap(fmt.Sprintf("get %x", key), err)
	}
	return value, ok, nil
}

// void tells whether a stored key is one of a closed window.
func (im *Image) void(stored []byte) bool { return len(im.closed) > 0 && im.closed[windowOf(stored)] }

// place is where key is among the newer changes, or would be.
func (im *Image) place(key []byte) int {
	return sort.Search(len(im.newer), func(i int) bool { return bytes.Compare(im.newer[i].Key, key) >= 0 })
}

// Range walks the state keys in [lo, hi) with their encoded values, ascending. A nil lo
// means from the first key, a nil hi to the last. An entry is valid until the next step. What
// the body of the loop does holds up nobody.
func (im *Image) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		newer := im.newer[im.place(lo):]
		if hi != nil {
			newer = newer[:sort.Search(len(newer), func(i int) bool { return bytes.Compare(newer[i].Key, hi) >= 0 })]
		}
		// give hands out the newer changes before bound, or all of them.
		give := func(bound []byte, all bool) bool {
			for len(newer) > 0 && (all || bytes.Compare(newer[0].Key, bound) < 0) {
				e := newer[0]
				newer = newer[1:]
				if e.Value != nil && !yield(e, nil) {
					return false
				}
			}
			return true
		}
		for e, err := range im.stored(lo, hi) {
			if err != nil {
				yield(Entry{}, im.store.wrap("read an image", err))
				return
			}
			if !give(e.Key, false) {
				return
			}
			if len(newer) > 0 && bytes.Equal(newer[0].Key, e.Key) {
				continue // with the newer ones
			}
			if !yield(e, nil) {
				return
			}
		}
		give(nil, true)
	}
}

const (
	// imageEntries and imageBytes bound what is read of the database at once.
	imageEntries = 512
	imageBytes   = 256 << 10
)

// stored walks what the database holds of values.
func (im *Image) stored(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		end := valuesEnd
		if hi != nil {
			end = StoredKey(hi)
		}
		for e, err := range im.all(StoredKey(lo), end) {
			if err == nil && im.void(e.Key) {
				continue
			}
			if err == nil {
				e.Key = e.Key[1:]
				e.Value, err = valueBody(e.Value)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Stored walks the values and the schemas in the image of a store as the store has them,
// ascending: what a changelog would have to hold, for a store to become like this one.
func (im *Image) Stored() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range im.all(schemasBegin, valuesEnd) {
			if err != nil {
				err = im.store.wrap("read an image", err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// all walks the database, some entries at a time.
func (im *Image) all(from, end []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var entries []Entry
		for more := true; more; {
			var err error
			if entries, more, err = im.read(entries[:0], from, end); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if more {
				from = append(bytes.Clone(entries[len(entries)-1].Key), 0)
			}
		}
	}
}

// read appends the first entries in [from, end) to dst, and tells whether there may be more.
func (im *Image) read(dst []Entry, from, end []byte) (_ []Entry, more bool, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.done {
		return dst, false, ErrClosed
	}
	size := 0
	for e, err := range im.snap.Range(from, end) {
		if err != nil {
			return dst, false, err
		}
		dst = append(dst, Entry{bytes.Clone(e.Key), append([]byte{}, e.Value...)})
		if size += len(e.Key) + len(e.Value); len(dst) == imageEntries || size > imageBytes {
			return dst, true, nil
		}
	}
	return dst, false, nil
}

// Image is what the table holds now, as its store will once all changes are committed: of
// key alone, a state key, where it is not nil. Only the table's task calls it; what it
// returns is for anybody.
func (t *table) Image(key []byte) (*Image, error) {
	if t.live.err != nil {
		return nil, t.live.err
	}
	// The snapshot comes first: all it has was in the table before.
	im, err := t.live.store.image()
	if err != nil {
		return nil, err
	}
	if key != nil {
		if _, e := t.overlay.find(Hash(key), key); e != nil {
			err = t.live.newer(im, e, key)
		}
	} else {
		err = t.live.allNewer(im, &t.overlay, func(dst, key []byte) []byte { return append(dst, key...) })
	}
	return im.sorted(err)
}

// Image is what the table holds now; see Table.Image.
func (t *windowTable) Image(key []byte) (*Image, error) {
	if t.live.err != nil {
		return nil, t.live.err
	}
	im, err := t.live.store.image()
	if err != nil {
		return nil, err
	}
	for _, w := range t.left {
		if im.closed == nil {
			im.closed = make(map[uint64]bool)
		}
		im.closed[encodedStart(w.start)] = true
	}
	if key != nil {
		var start int64
		var inner []byte
		if start, inner, err = SplitWindowKey(key); err == nil {
			if w := t.window(start, false); w != nil {
				if _, e := w.overlay.find(Hash(inner), inner); e != nil {
					err = t.live.newer(im, e, key)
				}
			}
		}
		return im.sorted(err)
	}
	for _, w := range t.windows {
		if err == nil {
			err = t.live.allNewer(im, &w.overlay, func(dst, key []byte) []byte { return AppendWindowKey(dst, w.start, key) })
		}
	}
	return im.sorted(err)
}

// allNewer adds all entries of o that the store may not have.
func (l *live) allNewer(im *Image, o *overlay, stateKey func(dst, key []byte) []byte) error {
	for id := range o.next {
		e := o.at(id)
		if e.flags&flagOccupied == 0 || e.flags&flagDirty == 0 && e.change <= l.ledger.passed {
			continue
		}
		if err := l.newer(im, e, stateKey(nil, o.key(e))); err != nil {
			return err
		}
	}
	return nil
}

// newer adds an entry of the overlay.
func (l *live) newer(im *Image, e *entry, stateKey []byte) error {
	if e.flags&flagDeleted != 0 {
		im.newer = append(im.newer, Entry{bytes.Clone(stateKey), nil})
		return nil
	}
	value, err := l.values.append([]byte{}, e)
	if err != nil {
		return l.store.wrap(fmt.Sprintf("encode the value of key %x", stateKey), err)
	}
	im.newer = append(im.newer, Entry{bytes.Clone(stateKey), value})
	return nil
}

// sorted finishes an image, or lets go of it where err says that it failed.
func (im *Image) sorted(err error) (*Image, error) {
	if err != nil {
		return nil, errors.Join(err, im.Close())
	}
	sort.Slice(im.newer, func(i, j int) bool { return bytes.Compare(im.newer[i].Key, im.newer[j].Key) < 0 })
	return im, nil
}
