package stream

import (
	"encoding/binary"
	"errors"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
)

// subscriptions are left rows by foreign key, in one task, in the state of a join on
// foreign keys. Those of one foreign key are a list, linked both ways: to come or go takes
// a look at its neighbours, and to find all of them takes no scan of the others.
//
// The list of a foreign key begins at its head, an entry without a row, which there is
// where the list is not empty. The newest one comes first.
type subscriptions[V any] struct {
	table *state.Table[subscription[V]]
	buf   []byte
}

// subscription is a left row, as the task of its foreign key keeps it, or a head.
type subscription[V any] struct {
	prev, next []byte // keys of its neighbours, nil for none, an empty one for the empty key; not changed in place
	head       bool

	version version
	time    int64
	row     V
}

// subscriptionCodec is the encoding of an entry:
//
//	byte     1 there is one before, 2 there is one behind, 4 it is a head
//	uvarint  length of the key of the one before, and that; where flag 1 is set
//	uvarint  length of the key of the one behind, and that; where flag 2 is set
//	         the rest where flag 4 is not set:
//	varint   attempt that the row came in
//	varint   number of the change there
//	varint   time of the row, ms since the epoch
//	rest     the row, in its own codec
//
// Its state key is the length of the foreign key (uvarint), that key, and, but for
// a head, 01 and the key of the row.
type subscriptionCodec[V any] struct {
	value codec.Codec[V]
	layout
}

var errSubscription = errors.New("stream: damaged row in the state of a join on foreign keys")

func (c subscriptionCodec[V]) Append(dst []byte, s subscription[V]) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0)
	for i, neighbour := range [][]byte{s.prev, s.next} {
		if neighbour != nil {
			dst[at] |= 1 << i
			dst = append(binary.AppendUvarint(dst, uint64(len(neighbour))), neighbour...)
		}
	}
	if s.head {
		dst[at] |= 4
		return dst, nil
	}
	dst = binary.AppendVarint(binary.AppendVarint(dst, s.version.attempt), s.version.n)
	return c.value.Append(binary.AppendVarint(dst, s.time), s.row)
}

func (c subscriptionCodec[V]) Decode(src []byte) (s subscription[V], err error) {
	if len(src) == 0 || src[0] > 7 {
		return s, errSubscription
	}
	flags := src[0]
	src = src[1:]
	for i, neighbour := range []*[]byte{&s.prev, &s.next} {
		if flags&(1<<i) == 0 {
			continue
		}
		length, n := binary.Uvarint(src)
		if n <= 0 || length > uint64(len(src)-n) {
			return s, errSubscription
		}
		end := n + int(length)
		*neighbour = append([]byte{}, src[n:end]...)
		src = src[end:]
	}
	if s.head = flags&4 != 0; s.head {
		return s, nil
	}
	for _, field := range []*int64{&s.version.attempt, &s.version.n, &s.time} {
		v, n := binary.Varint(src)
		if n <= 0 {
			return s, errSubscription
		}
		*field, src = v, src[n:]
	}
	s.row, err = c.value.Decode(src)
	return s, err
}

var _ codec.Schemed = subscriptionCodec[int]{}

// subscribedTo is the foreign key in a state key.
func subscribedTo(stateKey []byte) ([]byte, error) {
	foreign, _, ok := cutSized(stateKey)
	if !ok {
		return nil, errSubscription
	}
	return foreign, nil
}

// at is the state key of an entry, the head for a nil key. It is valid until the next call.
func (s *subscriptions[V]) at(foreign, key []byte) (hash uint64, stateKey []byte) {
	s.buf = append(binary.AppendUvarint(s.buf[:0], uint64(len(foreign))), foreign...)
	if key != nil {
		s.buf = append(append(s.buf, 1), key...)
	}
	return state.Hash(s.buf), s.buf
}

func (s *subscriptions[V]) get(foreign, key []byte) (*subscription[V], bool, error) {
	hash, at := s.at(foreign, key)
	return s.table.Get(hash, at)
}

// change changes an entry that there must be; the head may be made by it.
func (s *subscriptions[V]) change(foreign, key []byte, f func(e *subscription[V])) error {
	hash, at := s.at(foreign, key)
	e, existed, err := s.table.Update(hash, at)
	if err != nil {
		return err
	}
	if !existed && key != nil {
		return errSubscription
	}
	e.head = key == nil
	f(e)
	return nil
}

// put sets the row of a key, which may have one already. It keeps key.
func (s *subscriptions[V]) put(foreign, key []byte, row subscription[V]) error {
	key = notNil(key)
	e, existed, err := s.get(foreign, key)
	if err != nil {
		return err
	}
	if existed {
		row.prev, row.next = e.prev, e.next
	} else if row.next, err = s.push(foreign, key); err != nil {
		return err
	}
	hash, at := s.at(foreign, key)
	if e, _, err = s.table.Update(hash, at); err == nil {
		*e = row
	}
	return err
}

// push puts key in front of the list, whose first was next.
func (s *subscriptions[V]) push(foreign, key []byte) (next []byte, err error) {
	if err := s.change(foreign, nil, func(head *subscription[V]) { next, head.next = head.next, key }); err != nil || next == nil {
		return nil, err
	}
	return next, s.change(foreign, next, func(e *subscription[V]) { e.prev = key })
}

// remove removes the row of a key, if it has one.
func (s *subscriptions[V]) remove(foreign, key []byte) error {
	key = notNil(key)
	e, ok, err := s.get(foreign, key)
	if err != nil || !ok {
		return err
	}
	prev, next := e.prev, e.next
	if err := s.delete(foreign, key); err != nil {
		return err
	}
	if next != nil {
		if err := s.change(foreign, next, func(e *subscription[V]) { e.prev = prev }); err != nil {
			return err
		}
	}
	if prev == nil && next == nil {
		return s.delete(foreign, nil)
	}
	return s.change(foreign, prev, func(e *subscription[V]) { e.next = next })
}

func (s *subscriptions[V]) delete(foreign, key []byte) error {
	hash, at := s.at(foreign, key)
	return s.table.Delete(hash, at)
}

// each calls f for the rows of a foreign key, the newest one first. f must not change them.
func (s *subscriptions[V]) each(foreign []byte, f func(key []byte, e *subscription[V]) error) error {
	head, ok, err := s.get(foreign, nil)
	if err != nil || !ok {
		return err
	}
	for key := head.next; key != nil; {
		e, ok, err := s.get(foreign, key)
		if err != nil {
			return err
		}
		if !ok {
			return errSubscription
		}
		next := e.next
		if err := f(key, e); err != nil {
			return err
		}
		key = next
	}
	return nil
}

// notNil is key, where nil would mean that there is none.
func notNil(key []byte) []byte {
	if key == nil {
		return []byte{}
	}
	return key
}
