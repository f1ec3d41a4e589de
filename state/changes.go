package state

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
)

// changes collects what one step of a follower reads, copied out of the log, and gives the
// newest change of each key, in order.
//
// Most keys of a long step changed once, so changes are put one behind the other and sorted
// when all are there, which is faster than to look each up in a table.
type changes struct {
	list   []change
	data   arena
	sorter sorter
	closed map[uint64]int // by the encoded start of a window: changes of it before this one are void

	closing bool   // what was put last is part of the closing of a window
	window  uint64 // that one
}

// change is one change of a key: its key, and behind it its value, in the arena.
type change struct {
	data    blobRef
	key     uint32 // bytes of the key
	deleted bool
}

// changeSize is what a change takes in memory besides its key and value.
const changeSize = 56

// changesPool is shared by all followers: a step may need much memory, and is soon over.
var changesPool = sync.Pool{New: func() any { return &changes{closed: make(map[uint64]int)} }}

// put records a change that is newer than all before it; a nil value deletes.
func (c *changes) put(key, value []byte) {
	if c.closing && value == nil && key[0] == kindValue && windowOf(key) == c.window {
		return // gone with its window
	}
	c.closing = false
	c.list = append(c.list, change{c.data.put(key, value), uint32(len(key)), value == nil})
}

// close records that a window has no keys any more. What is put next are the deletions of
// those it had, which need not be done one by one.
func (c *changes) close(start uint64) {
	c.closed[start] = len(c.list)
	c.closing, c.window = true, start
}

// size is the memory that the changes take, about.
func (c *changes) size() int64 { return c.data.bytes + changeSize*int64(len(c.list)) }

func (c *changes) at(i uint32) (key, value []byte) {
	e := &c.list[i]
	data := c.data.get(e.data)
	if e.deleted {
		return data[:e.key:e.key], nil
	}
	return data[:e.key:e.key], data[e.key:]
}

// sort prepares all, and returns the number of keys that changed.
func (c *changes) sort() (keys int) {
	shared := c.sharedPrefix()
	c.sorter.begin(len(c.list))
	for i := range c.list {
		key, _ := c.at(uint32(i))
		if len(c.closed) > 0 && key[0] == kindValue && i < c.closed[windowOf(key)] {
			continue
		}
		c.sorter.add(keyPrefix(key[shared:]), uint32(i))
	}
	c.sorter.sort(func(a, b uint32) int {
		one, _ := c.at(a)
		other, _ := c.at(b)
		return bytes.Compare(one, other)
	})
	// The newest change of a key is the last.
	order := c.sorter.list
	for _, s := range order {
		if keys > 0 && order[keys-1].prefix == s.prefix {
			before, _ := c.at(order[keys-1].id)
			key, _ := c.at(s.id)
			if bytes.Equal(before, key) {
				keys--
			}
		}
		order[keys] = s
		keys++
	}
	c.sorter.list = order[:keys]
	return keys
}

// sharedPrefix is the number of bytes that all keys begin with alike.
func (c *changes) sharedPrefix() int {
	if len(c.list) == 0 {
		return 0
	}
	first, _ := c.at(0)
	shared := len(first)
	for i := range c.list {
		key, _ := c.at(uint32(i))
		shared = min(shared, len(key))
		for shared > 0 && string(key[:shared]) != string(first[:shared]) {
			shared--
		}
	}
	return shared
}

// all calls f for the newest change of each key in ascending order, after sort; key and value,
// nil for a deleted key, are valid until reset.
func (c *changes) all(f func(key, value []byte) error) error {
	for block := range slices.Chunk(c.sorter.list, ahead) {
		c.approach(block)
		for _, s := range block {
			if err := f(c.at(s.id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// approach brings changes nearer to the processor: they lie in another order than they are
// asked for, and here none is waited for. In line the compiler would see that nobody needs what
// it reads.
//
//go:noinline
func (c *changes) approach(block []sortedID) (sink uint64) {
	for _, s := range block {
		key, _ := c.at(s.id)
		sink += uint64(key[0])
	}
	return sink
}

// ranges are the ranges of stored keys of the windows that were closed, ascending.
func (c *changes) ranges() (all []Range) {
	for start := range c.closed {
		lo := binary.BigEndian.AppendUint64([]byte{kindValue}, start)
		hi := []byte{kindValue + 1}
		if start+1 != 0 {
			hi = binary.BigEndian.AppendUint64([]byte{kindValue}, start+1)
		}
		all = append(all, Range{lo, hi})
	}
	slices.SortFunc(all, func(a, b Range) int { return bytes.Compare(a.Lo, b.Lo) })
	return all
}

func (c *changes) reset() {
	c.list, c.sorter.list = c.list[:0], c.sorter.list[:0]
	c.data.reset()
	clear(c.closed)
	c.closing = false
}
