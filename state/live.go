package state

import "fmt"

// live is what Table and WindowTable have in common: the way to the store, and
// the account of what they hold.
type live struct {
	store  *Store
	values *values
	share  cacheShare
	ledger *ledger
	budget int64 // zero means none
	err    error // fault met while the table was made; returned by every call

	buf     []byte // key and value of the entry being encoded
	schema  bool   // the changelog has the codec's schema, or there is none
	encoded int64  // average size of an encoded value, when values have pointers that the ledger does not see
}

func newLive(s *Store, v *values) live {
	l := live{
		store:  s,
		values: v,
		share:  newCacheShare(s.o.Cache),
		ledger: &ledger{base: s.Mark(), entrySize: int64(v.stride)},
	}
	l.schema, l.err = loadSchemas(s, v.codec)
	return l
}

// load brings a key from the cache or the store into o; e is nil when it is in neither.
// The cache has it under a hash of its own, and both under its state key.
func (l *live) load(o *overlay, hash uint64, key []byte, cacheHash uint64, stateKey []byte) (uint32, *entry, error) {
	if box := l.share.take(cacheHash, stateKey); box != nil {
		id, e := o.insert(hash, key)
		e.flags |= flagInStore
		l.values.unbox(e, box)
		return id, e, nil
	}
	encoded, ok, err := l.store.Get(stateKey)
	if err != nil || !ok {
		return 0, nil, err
	}
	return l.insert(o, hash, key, stateKey, encoded)
}

// insert brings a key into o that only the store has.
func (l *live) insert(o *overlay, hash uint64, key, stateKey, encoded []byte) (uint32, *entry, error) {
	id, e := o.insert(hash, key)
	e.flags |= flagInStore
	if err := l.decode(e, stateKey, encoded); err != nil {
		o.remove(id, e)
		return 0, nil, err
	}
	return id, e, nil
}

func (l *live) decode(e *entry, stateKey, encoded []byte) error {
	if err := l.values.decode(e, encoded); err != nil {
		return l.store.wrap(fmt.Sprintf("decode the value of key %x", stateKey), err)
	}
	l.sized(len(encoded))
	return nil
}

// sized takes the size of one encoded value into the average.
func (l *live) sized(n int) {
	if l.values.pointers {
		l.encoded += (int64(n) - l.encoded) / 8
		if l.encoded == 0 {
			l.encoded = int64(n)
		}
	}
}

// begin starts a barrier: the schema goes before the first value written under it.
func (l *live) begin(put func(key, value []byte) error) error {
	if l.err != nil || l.schema || l.ledger.dirty == 0 {
		return l.err
	}
	if err := putSchema(l.values.codec, put); err != nil {
		return err
	}
	l.schema = true
	return nil
}

// write encodes the entry and hands it to put. l.buf holds the key.
func (l *live) write(e *entry, put func(key, value []byte) error) error {
	n := len(l.buf)
	if e.flags&flagDeleted != 0 {
		return put(l.buf, nil)
	}
	buf, err := l.values.append(append(l.buf, valueVersion), e)
	if err != nil {
		return l.store.wrap(fmt.Sprintf("encode the value of key %x", l.buf[1:n]), err)
	}
	l.buf = buf
	l.sized(len(buf) - n - 1)
	return put(buf[:n:n], buf[n:])
}

// evicted hands a value that leaves the overlay to the cache.
func (l *live) evicted(hash uint64, stateKey []byte, e *entry) {
	if l.share.cache == nil {
		return
	}
	l.share.left(hash, e.change)
	l.share.put(hash, stateKey, l.values.box(e), l.ledger.passed, l.ledger.entrySize+l.encoded)
}

func (l *live) bytes(used int) int64 { return l.ledger.bytes() + l.encoded*int64(used) }

// unsettled is the memory of entries that cannot leave the overlay.
func (l *live) unsettled() int64 {
	const slot = 12 // 8 bytes at three quarters full, and some
	return l.ledger.unsettled() * (l.ledger.entrySize + l.encoded + slot)
}
