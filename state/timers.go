package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	mathbits "math/bits"
	"slices"

	"github.com/thalweg/thalweg/internal/invariant"
)

// MaxTimerTag is the highest tag of a timer.
const MaxTimerTag = 63

// Timers are the timers of one task: a durable set of (time, key, tag), in a store
// of its own. It is kept as queues that have nothing to do with each other, for
// times of different clocks. A timer fires once: Pop removes it, and the
// removal is part of the checkpoint that what it led to is part of.
//
// All timers are in the table, which may hold them in memory or in the store. A queue
// has in memory besides, in order, its earliest ones only, some of the table's
// sixteenth; so a pop costs a heap, memory stays within the table's budget, and a
// timer that is far off costs as much as a key.
//
// Only the task calls it.
type Timers struct {
	table  *Table[uint64] // the tags of each time and key
	queues [2]*TimerQueue
}

// NewTimers returns the timers kept in s, which must be where the attempt starts:
// CatchUp comes first.
func NewTimers(s *Store) *Timers { return timersIn(NewTable[uint64](s, tagsCodec{})) }

func timersIn(table *Table[uint64]) *Timers {
	t := &Timers{table: table}
	for id := range t.queues {
		t.queues[id] = &TimerQueue{t: t, id: byte(id), all: t.table.complete, horizon: []byte{byte(id)}}
	}
	return t
}

// Queue returns one of the queues, 0 or 1: their timers are told apart by nothing
// but the caller, who keeps event time in one and the wall clock in the other.
func (t *Timers) Queue(id int) *TimerQueue { return t.queues[id] }

// Barrier encodes what changed; see Table.Barrier.
func (t *Timers) Barrier(n int64, put func(key, value []byte) error) error {
	return t.table.Barrier(n, put)
}

// Passed tells the timers how far their store is; see Table.Passed.
func (t *Timers) Passed(m Mark) { t.table.Passed(m) }

// SetBudget sets the memory above which timers leave it; see Table.SetBudget.
func (t *Timers) SetBudget(bytes int64) { t.table.SetBudget(bytes) }

// Image is what the timers are now; see Table.Image. AppendTimerKey makes the state key of one.
func (t *Timers) Image(key []byte) (*Image, error) { return t.table.Image(key) }

// Err is a fault met while the timers were opened.
func (t *Timers) Err() error { return t.table.Err() }

// Dirty is the memory that only a checkpoint frees.
func (t *Timers) Dirty() int64 { return t.table.Dirty() }

// Bytes is the memory in use.
func (t *Timers) Bytes() int64 {
	n := t.table.Bytes()
	for _, q := range t.queues {
		n += q.keys.bytes + int64(cap(q.front))*frontSize
	}
	return n
}

// TimerQueue is a set of timers in the order of their time, then key, then tag.
//
// Invariant: every timer before the horizon is in front. What is in front need not be
// a timer any more; the table knows.
type TimerQueue struct {
	t       *Timers
	id      byte
	front   []frontTimer // a heap, the earliest first
	keys    arena        // of front
	all     bool         // there is no horizon: every timer is in front
	horizon []byte       // a state key
	checked bool         // the first of front is known to be a timer
	key     []byte       // of the timer being fired
	buf     []byte
}

type frontTimer struct {
	at  int64
	key blobRef
}

const (
	frontSize = 24   // bytes of a frontTimer
	minFront  = 1024 // timers that may be in front however few there are
)

// Add sets a timer for key; one that is set already stays as it is. at is in ms, and
// may be in the past. tag is at most MaxTimerTag.
func (q *TimerQueue) Add(at int64, key []byte, tag uint8) error {
	invariant.Check(tag <= MaxTimerTag, "state: timer with tag %d", tag)
	stateKey := q.stateKey(at, key)
	hash := Hash(stateKey)
	tags, ok, err := q.t.table.Get(hash, stateKey)
	if err != nil || ok && *tags&(1<<tag) != 0 {
		return err
	}
	if tags, ok, err = q.t.table.Update(hash, stateKey); err != nil {
		return err
	}
	*tags |= 1 << tag
	if ok || !q.all && bytes.Compare(stateKey, q.horizon) >= 0 {
		return nil
	}
	q.push(at, key)
	if len(q.front) > 2*q.limit() {
		return q.refill()
	}
	return nil
}

// Has tells whether a timer is set.
func (q *TimerQueue) Has(at int64, key []byte, tag uint8) (bool, error) {
	stateKey := q.stateKey(at, key)
	tags, ok, err := q.t.table.Get(Hash(stateKey), stateKey)
	return ok && *tags&(1<<tag) != 0, err
}

// Cancel removes a timer. One that is not set is no error.
func (q *TimerQueue) Cancel(at int64, key []byte, tag uint8) error {
	stateKey := q.stateKey(at, key)
	hash := Hash(stateKey)
	tags, ok, err := q.t.table.Get(hash, stateKey)
	if err != nil || !ok || *tags&(1<<tag) == 0 {
		return err
	}
	q.checked = false
	return q.remove(hash, stateKey, *tags, tag)
}

// remove takes one of the tags away, and the timer with the last one.
func (q *TimerQueue) remove(hash uint64, stateKey []byte, tags uint64, tag uint8) error {
	if tags &^= 1 << tag; tags == 0 {
		return q.t.table.Delete(hash, stateKey)
	}
	changed, _, err := q.t.table.Update(hash, stateKey)
	if err == nil {
		*changed = tags
	}
	return err
}

// Next is the time of the earliest timer; ok is false where there is none.
func (q *TimerQueue) Next() (at int64, ok bool, err error) {
	if !q.checked {
		if _, _, ok, err = q.first(); !ok {
			return 0, false, err
		}
	}
	return q.front[0].at, true, nil
}

// first makes the first of front the earliest timer. stateKey is valid until the next
// call of a method.
func (q *TimerQueue) first() (stateKey []byte, tags uint64, ok bool, err error) {
	for {
		for len(q.front) > 0 {
			stateKey := q.stateKey(q.front[0].at, q.keys.get(q.front[0].key))
			tags, ok, err := q.t.table.Get(Hash(stateKey), stateKey)
			if err != nil {
				return nil, 0, false, err
			}
			if ok {
				q.checked = true
				return stateKey, *tags, true, nil
			}
			q.pop()
		}
		if q.all {
			return nil, 0, false, nil
		}
		if err := q.refill(); err != nil {
			return nil, 0, false, err
		}
	}
}

// Pop removes all timers up to a time, inclusive, in order, and calls f for each once
// it is removed. key is valid during the call. f may set and cancel timers of the
// queue: what it sets up to the time is popped too. An error of f ends Pop, and the
// timers behind it stay.
func (q *TimerQueue) Pop(upTo int64, f func(at int64, key []byte, tag uint8) error) error {
	for len(q.front) == 0 || q.front[0].at <= upTo {
		stateKey, tags, ok, err := q.first()
		if err != nil || !ok || q.front[0].at > upTo {
			return err
		}
		at, tag := q.front[0].at, uint8(mathbits.TrailingZeros64(tags))
		q.key = append(q.key[:0], stateKey[queueSize+windowSize:]...)
		if err := q.remove(Hash(stateKey), stateKey, tags, tag); err != nil {
			return err
		}
		if tags&(tags-1) == 0 {
			q.pop()
		}
		if err := f(at, q.key, tag); err != nil {
			return err
		}
	}
	return nil
}

// queueSize is the size of the queue's number in a state key.
const queueSize = 1

// stateKey is the key of a timer in the table. It is valid until the next call.
func (q *TimerQueue) stateKey(at int64, key []byte) []byte {
	q.buf = AppendTimerKey(q.buf[:0], q.id, at, key)
	return q.buf
}

// AppendTimerKey appends the state key of the timer of key at an instant, in the queue of
// that number.
func AppendTimerKey(dst []byte, queue byte, at int64, key []byte) []byte {
	return AppendWindowKey(append(dst, queue), at, key)
}

// SplitTimerKey is the inverse of AppendTimerKey; key is part of stateKey.
func SplitTimerKey(stateKey []byte) (queue byte, at int64, key []byte, err error) {
	if len(stateKey) < queueSize {
		return 0, 0, nil, errors.New("state: a timer without a queue")
	}
	at, key, err = SplitWindowKey(stateKey[queueSize:])
	return stateKey[0], at, key, err
}

// TimerHas tells whether the encoded value of a timer has a tag.
func TimerHas(encoded []byte, tag uint8) (bool, error) {
	tags, err := tagsCodec{}.Decode(encoded)
	return tags&(1<<tag) != 0, err
}

// limit is how many timers front holds when it is filled.
func (q *TimerQueue) limit() int { return max(minFront, q.t.table.overlay.used/16) }

// candidate is a timer that may be among the earliest.
type candidate struct {
	key    []byte
	tags   uint64
	stored bool // in the store, and not in the overlay
}

// refill makes front the earliest timers, and moves the horizon behind them.
func (q *TimerQueue) refill() error {
	limit, table := q.limit(), q.t.table
	lo := q.horizon
	if len(q.front) > 0 {
		lo = bytes.Clone(q.stateKey(q.front[0].at, q.keys.get(q.front[0].key)))
	}
	e := earliest{n: limit + 1}
	for id := range table.overlay.next {
		entry := table.overlay.at(id)
		if key := table.overlay.key(entry); entry.flags&(flagOccupied|flagDeleted) == flagOccupied && key[0] == q.id {
			e.offer(candidate{key: key, tags: *valueOf[uint64](entry)})
		}
	}
	if !table.complete {
		stored := 0
		for s, err := range table.live.store.Range(lo, []byte{q.id + 1}) {
			if err != nil {
				return err
			}
			if e.after(s.Key) || stored > limit {
				break
			}
			if _, entry := table.overlay.find(Hash(s.Key), s.Key); entry != nil {
				continue
			}
			tags, err := tagsCodec{}.Decode(s.Value)
			if err != nil {
				return table.live.store.wrap("read the timers", err)
			}
			stored++
			e.offer(candidate{bytes.Clone(s.Key), tags, true})
		}
	}
	found := e.sorted()
	if q.all = len(found) <= limit; !q.all {
		q.horizon = append(q.horizon[:0], found[limit].key...)
		found = found[:limit]
	}
	q.front, q.checked = q.front[:0], false
	q.keys.reset()
	for _, c := range found {
		if c.stored { // it will be deleted soon
			_, entry := table.overlay.insert(Hash(c.key), c.key)
			entry.flags |= flagInStore
			*valueOf[uint64](entry) = c.tags
		}
		at, key, err := SplitWindowKey(c.key[queueSize:])
		if err != nil {
			return table.live.store.wrap("read the timers", err)
		}
		q.front = append(q.front, frontTimer{at, q.keys.put(key)}) // in order, and so a heap
	}
	return nil
}

// earliest keeps the n lowest of the candidates it is offered.
type earliest struct {
	n     int
	found []candidate
	bound []byte // what is not below it is not among them; nil for none
}

func (e *earliest) after(key []byte) bool { return e.bound != nil && bytes.Compare(key, e.bound) >= 0 }

func (e *earliest) offer(c candidate) {
	if e.after(c.key) {
		return
	}
	if e.found = append(e.found, c); len(e.found) == 2*e.n {
		e.bound = e.sorted()[e.n-1].key
	}
}

func (e *earliest) sorted() []candidate {
	slices.SortFunc(e.found, func(a, b candidate) int { return bytes.Compare(a.key, b.key) })
	e.found = e.found[:min(len(e.found), e.n)]
	return e.found
}

// less tells whether timer i of front comes before timer j.
func (q *TimerQueue) less(i, j int) bool {
	a, b := q.front[i], q.front[j]
	if a.at != b.at {
		return cmp.Less(a.at, b.at)
	}
	return bytes.Compare(q.keys.get(a.key), q.keys.get(b.key)) < 0
}

// push adds a timer to front.
func (q *TimerQueue) push(at int64, key []byte) {
	q.front = append(q.front, frontTimer{at, q.keys.put(key)})
	i := len(q.front) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.front[i], q.front[parent] = q.front[parent], q.front[i]
		i = parent
	}
	q.checked = false
}

// pop takes the first one out of front.
func (q *TimerQueue) pop() {
	q.keys.waste += int64(q.front[0].key.size)
	last := len(q.front) - 1
	q.front[0] = q.front[last]
	q.front = q.front[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.less(child, least) {
				least = child
			}
		}
		if least == i {
			break
		}
		q.front[i], q.front[least] = q.front[least], q.front[i]
		i = least
	}
	q.checked = false
	switch {
	case last == 0:
		q.keys.reset()
	case q.keys.waste > firstBlock && q.keys.waste > q.keys.bytes/2:
		old := q.keys
		q.keys = arena{}
		for i := range q.front {
			q.front[i].key = q.keys.put(old.get(q.front[i].key))
		}
	}
}

// tagsCodec is the encoding of the tags of a timer: a uvarint, a bit for each.
type tagsCodec struct{}

func (tagsCodec) Append(dst []byte, tags uint64) ([]byte, error) {
	return binary.AppendUvarint(dst, tags), nil
}

func (tagsCodec) Decode(src []byte) (uint64, error) {
	tags, n := binary.Uvarint(src)
	if n != len(src) || n == 0 || tags == 0 {
		return 0, fmt.Errorf("state: %x is not the tags of a timer", src)
	}
	return tags, nil
}
