package state

import (
	"bytes"
	"encoding/binary"
	mathbits "math/bits"
	"slices"
	"unsafe"
)

const (
	inlineKey  = 22  // bytes of the longest key kept in its entry
	longKey    = 255 // keyLen of a key kept in the arena
	chunkBits  = 9   // entries in a chunk, as a power of two
	chunkSize  = 1 << chunkBits
	firstChunk = 8 // entries the first chunk begins with
	minSlots   = 2 * groupSize
)

// The flags of an entry.
//
//	             created           barrier           store passes it
//	(no entry) ---------> dirty -------------> waiting -------------> settled
//	                        ^                     |                      |
//	                        '------- changed -----+----------------------'
//
// dirty is a flag; waiting and settled differ by whether change is above what the
// store has passed. Only a settled entry may leave the overlay: a live one to make
// room, a deleted one at once.
const (
	flagDirty    = 1 << iota // changed since the last barrier
	flagDeleted              // a tombstone
	flagInStore              // the store or the changelog may hold the key
	flagUsed                 // looked up since the clock hand came by
	flagOccupied             // not a free entry
)

// entry is one key. Its value lies behind it in memory; see typedEntry.
type entry struct {
	inline [inlineKey]byte
	keyLen uint8 // length of the key in inline, or longKey: a blobRef is in inline
	flags  uint8
	change int64 // checkpoint of the last change, zero when older than the attempt; next free id in a free entry
}

// overlay is a hash table of entries under one key space. Its slots are 8 bytes
// each, 32 bits of the hash and the number of an entry in the chunks, in groups
// that fill a line of the processor's cache. A lookup compares a whole group at
// once, without a branch to mispredict, and so touches one line and one entry.
//
// The group of a key is given by the upper bits of its hash: growth reads the old
// slots and writes the new ones in the same order and never looks at an entry. A
// key whose group is full goes to the next that is not.
//
// Invariants: a group's slots are taken from the front, and the groups between a
// key's own and the one it is in are full.
//
// Entries do not move except while the first chunk grows.
type overlay struct {
	slots  []uint64         // hash bits << 32 | id+1; zero is empty. groupSize times a power of two in number
	shift  uint8            // hash bits >> shift is the group
	used   int              // occupied entries, tombstones among them
	live   int              // those that are not tombstones
	chunks []unsafe.Pointer // to chunkSize typed entries each, the first to first of them
	first  int
	stride uintptr // from an entry to the next
	values *values
	next   uint32 // entries handed out so far
	free   uint32 // first free entry plus one, or zero
	freed  int    // free entries
	keys   arena
	ledger *ledger

	dirty []uint32    // entries with flagDirty, in order of their first change
	tombs []tombstone // written tombstones that the store has not passed, by n
	hand  uint32      // clock hand over the entries
}

// groupSize is the number of slots in a group.
const groupSize = 8

type group [groupSize]uint64

// match returns a bit for each slot of g that has the hash bits.
func (g *group) match(bits uint32) uint32 {
	want := uint64(bits) << 32
	// Upper half zero, and only then, minus one has the highest bit.
	m := ((g[0]^want)>>32 - 1) >> 63
	m |= ((g[1]^want)>>32 - 1) >> 63 << 1
	m |= ((g[2]^want)>>32 - 1) >> 63 << 2
	m |= ((g[3]^want)>>32 - 1) >> 63 << 3
	m |= ((g[4]^want)>>32 - 1) >> 63 << 4
	m |= ((g[5]^want)>>32 - 1) >> 63 << 5
	m |= ((g[6]^want)>>32 - 1) >> 63 << 6
	m |= ((g[7]^want)>>32 - 1) >> 63 << 7
	return uint32(m)
}

func (g *group) full() bool { return g[groupSize-1] != 0 }

// len is the number of slots taken.
func (g *group) len() int {
	n := groupSize
	for n > 0 && g[n-1] == 0 {
		n--
	}
	return n
}

// group returns group i, modulo their number.
func (o *overlay) group(i uint32) *group {
	i &= uint32(len(o.slots)/groupSize - 1)
	return (*group)(o.slots[i*groupSize:])
}

// home is the group of a key with the hash bits.
func (o *overlay) home(bits uint32) uint32 { return bits >> (o.shift & 31) }

// tombstone is a deletion that checkpoint n has written.
type tombstone struct {
	n  int64
	id uint32
}

func newOverlay(v *values, l *ledger) overlay {
	return overlay{values: v, stride: v.stride, ledger: l}
}

// at is entry id, which is below next.
func (o *overlay) at(id uint32) *entry {
	return (*entry)(unsafe.Add(o.chunks[id>>chunkBits], uintptr(id&(chunkSize-1))*o.stride))
}

// key returns the key of e: its own bytes, not to be changed or kept.
func (o *overlay) key(e *entry) []byte {
	if e.keyLen != longKey {
		return e.inline[:e.keyLen]
	}
	return o.keys.get(e.longRef())
}

func (e *entry) longRef() blobRef {
	return blobRef{
		block: binary.LittleEndian.Uint32(e.inline[0:]),
		off:   binary.LittleEndian.Uint32(e.inline[4:]),
		size:  binary.LittleEndian.Uint32(e.inline[8:]),
	}
}

func (e *entry) setLongRef(r blobRef) {
	binary.LittleEndian.PutUint32(e.inline[0:], r.block)
	binary.LittleEndian.PutUint32(e.inline[4:], r.off)
	binary.LittleEndian.PutUint32(e.inline[8:], r.size)
}

// find returns the entry of key, or nil.
func (o *overlay) find(hash uint64, key []byte) (uint32, *entry) {
	if len(o.slots) == 0 {
		return 0, nil
	}
	bits := uint32(hash >> 32)
	for i := o.home(bits); ; i++ {
		g := o.group(i)
		for m := g.match(bits); m != 0; m &= m - 1 {
			id := uint32(g[mathbits.TrailingZeros32(m)&(groupSize-1)])
			if id == 0 {
				break // an empty slot looks like hash bits of zero
			}
			id--
			e := o.at(id)
			if int(e.keyLen) == len(key) && len(key) <= inlineKey {
				if string(e.inline[:len(key)]) == string(key) {
					return id, e
				}
			} else if e.keyLen == longKey && string(o.keys.get(e.longRef())) == string(key) {
				return id, e
			}
		}
		if !g.full() {
			return 0, nil
		}
	}
}

// insert adds key, which must not be there, with a zero value and no flags but
// flagOccupied.
func (o *overlay) insert(hash uint64, key []byte) (uint32, *entry) {
	if 4*(o.used+1) > 3*len(o.slots) {
		o.resize(max(minSlots, 2*len(o.slots)))
	}
	id := o.take()
	e := o.at(id)
	e.flags, e.change = flagOccupied, 0
	if len(key) <= inlineKey {
		e.keyLen = uint8(copy(e.inline[:], key))
	} else {
		before := o.keys.bytes
		e.keyLen = longKey
		e.setLongRef(o.keys.put(key))
		o.ledger.memory += o.keys.bytes - before
	}
	o.place(uint64(uint32(hash>>32))<<32 | uint64(id+1))
	o.used++
	o.live++
	return id, e
}

// place puts a slot in the first group from its own that has room.
func (o *overlay) place(s uint64) {
	i := o.home(uint32(s >> 32))
	for o.group(i).full() {
		i++
	}
	g := o.group(i)
	g[g.len()] = s
}

// displace takes the slot of an entry out. When that leaves room in a group that
// was full, a slot that had to go further moves in, and so on.
func (o *overlay) displace(bits, id uint32) {
	i := o.home(bits)
	at := -1
	for {
		at = slices.IndexFunc(o.group(i)[:], func(s uint64) bool { return uint32(s) == id+1 })
		if at >= 0 {
			break
		}
		i++
	}
	mask := uint32(len(o.slots)/groupSize - 1)
	for {
		g := o.group(i)
		wasFull := g.full()
		last := g.len() - 1
		g[at], g[last] = g[last], 0
		if !wasFull {
			return
		}
		// The first that went past group i.
		at = -1
		j := i
		for at < 0 {
			j++
			if (j-i)&mask == 0 {
				return
			}
			next := o.group(j)
			at = slices.IndexFunc(next[:], func(s uint64) bool {
				return s != 0 && (j-o.home(uint32(s>>32)))&mask >= (j-i)&mask
			})
			if at < 0 && !next.full() {
				return
			}
		}
		g[last] = o.group(j)[at]
		i = j
	}
}

// take returns a free entry's number.
func (o *overlay) take() uint32 {
	if o.free != 0 {
		id := o.free - 1
		o.free = uint32(o.at(id).change)
		o.freed--
		o.ledger.freed--
		return id
	}
	id := o.next
	o.next++
	c, i := int(id>>chunkBits), int(id&(chunkSize-1))
	before := o.room()
	switch {
	case len(o.chunks) == 0:
		o.first = firstChunk
		o.chunks = append(o.chunks, o.values.alloc(firstChunk, nil, 0))
	case c == 0 && i == o.first: // only the first chunk is ever short
		o.first = 2 * i
		o.chunks[0] = o.values.alloc(o.first, o.chunks[0], i)
	case c == len(o.chunks):
		o.chunks = append(o.chunks, o.values.alloc(chunkSize, nil, 0))
	}
	o.ledger.memory += int64(o.room()-before) * o.ledger.entrySize
	return id
}

// room is the number of entries in the chunks.
func (o *overlay) room() int {
	if len(o.chunks) == 0 {
		return 0
	}
	return o.first + (len(o.chunks)-1)*chunkSize
}

// resize moves the slots to n places.
func (o *overlay) resize(n int) {
	old := o.slots
	o.slots = make([]uint64, n)
	o.ledger.memory += 8 * int64(n-len(old))
	o.shift = uint8(32 - mathbits.TrailingZeros(uint(n/groupSize)))
	for _, s := range old {
		if s != 0 {
			o.place(s)
		}
	}
}

// remove takes the entry id out of the table. What pointed to its value no longer
// keeps it alive.
func (o *overlay) remove(id uint32, e *entry) {
	o.displace(uint32(Hash(o.key(e))>>32), id)
	o.used--
	if e.flags&flagDeleted == 0 {
		o.live--
	}
	if e.keyLen == longKey {
		o.keys.waste += int64(e.longRef().size)
	}
	o.values.clear(e)
	*e = entry{change: int64(o.free)}
	o.free = id + 1
	o.freed++
	o.ledger.freed++
}

// markDirty notes that the entry changes now.
func (o *overlay) markDirty(id uint32, e *entry) {
	if e.flags&flagDirty == 0 {
		e.flags |= flagDirty
		o.dirty = append(o.dirty, id)
		o.ledger.changed(e.change)
	}
}

// delete makes the entry a tombstone, and one that was never written vanishes at
// the barrier.
func (o *overlay) delete(id uint32, e *entry) {
	if e.flags&flagDeleted != 0 {
		return
	}
	e.flags |= flagDeleted
	o.live--
	o.values.clear(e)
	o.markDirty(id, e)
}

// change marks the entry of key as changing now. It makes one where e is nil, and
// a tombstone becomes a key with a zero value; then existed is false.
func (o *overlay) change(hash uint64, key []byte, id uint32, e *entry) (_ *entry, existed bool) {
	existed = true
	switch {
	case e == nil:
		id, e = o.insert(hash, key)
		existed = false
	case e.flags&flagDeleted != 0:
		e.flags &^= flagDeleted
		o.live++
		existed = false
	}
	o.markDirty(id, e)
	e.flags |= flagUsed
	return e, existed
}

// barrier calls write for every entry that changed since the last barrier and
// stamps them with n. Tombstones of keys that nobody else knows are dropped.
func (o *overlay) barrier(n int64, write func(e *entry) error) error {
	for i, id := range o.dirty {
		e := o.at(id)
		if e.flags&(flagDeleted|flagInStore) == flagDeleted {
			o.remove(id, e)
			o.ledger.dirty--
			continue
		}
		if err := write(e); err != nil {
			o.dirty = append(o.dirty[:0], o.dirty[i:]...)
			return err
		}
		e.flags = e.flags&^flagDirty | flagInStore
		e.change = n
		o.ledger.stamped(n)
		if e.flags&flagDeleted != 0 {
			o.tombs = append(o.tombs, tombstone{n, id})
		}
	}
	o.dirty = o.dirty[:0]
	return nil
}

// passed removes the tombstones that the store has passed, calling gone for each
// before.
func (o *overlay) passed(gone func(e *entry)) {
	i := 0
	for ; i < len(o.tombs) && o.tombs[i].n <= o.ledger.passed; i++ {
		id, n := o.tombs[i].id, o.tombs[i].n
		e := o.at(id)
		if e.change != n {
			continue // written again since
		}
		gone(e)
		if e.flags&flagDirty != 0 {
			e.flags &^= flagInStore // changed since, and as good as new
			continue
		}
		o.remove(id, e)
	}
	o.tombs = slices.Delete(o.tombs, 0, i)
}

// evict moves the clock hand over up to all entries, twice, and calls out for
// settled live entries not looked up lately, before they are removed, until
// enough returns true. It reports whether it did.
func (o *overlay) evict(enough func() bool, out func(e *entry)) bool {
	for steps := 2 * int(o.next); steps > 0; steps-- {
		if enough() {
			return true
		}
		if o.hand >= o.next {
			o.hand = 0
		}
		id := o.hand
		o.hand++
		e := o.at(id)
		if e.flags&(flagOccupied|flagDirty|flagDeleted) != flagOccupied || e.change > o.ledger.passed {
			continue
		}
		if e.flags&flagUsed != 0 {
			e.flags &^= flagUsed
			continue
		}
		out(e)
		o.remove(id, e)
	}
	return enough()
}

// shrink gives back memory after many entries have left.
func (o *overlay) shrink() {
	if n := len(o.slots); n > minSlots && 8*o.used < n {
		o.resize(max(minSlots, n/4))
	}
	if o.keys.waste > o.keys.bytes/2 {
		old := o.keys
		o.keys = arena{}
		for id := range o.next {
			if e := o.at(id); e.flags&flagOccupied != 0 && e.keyLen == longKey {
				e.setLongRef(o.keys.put(old.get(e.longRef())))
			}
		}
		o.ledger.memory += o.keys.bytes - old.bytes
	}
}

// drop takes the overlay's memory off the ledger; it is not used afterwards.
func (o *overlay) drop() {
	o.ledger.memory -= int64(o.room())*o.ledger.entrySize + 8*int64(len(o.slots)) + o.keys.bytes
	o.ledger.freed -= int64(o.freed)
	*o = overlay{values: o.values, stride: o.stride, ledger: o.ledger}
}

// sort has by sort all entries, tombstones too, by key.
func (o *overlay) sort(by *sorter) {
	by.begin(o.used)
	shared := o.sharedPrefix()
	for id := range o.next {
		if e := o.at(id); e.flags&flagOccupied != 0 {
			by.add(keyPrefix(o.key(e)[shared:]), id)
		}
	}
	by.sort(func(a, b uint32) int { return bytes.Compare(o.key(o.at(a)), o.key(o.at(b))) })
}

// sharedPrefix is the number of bytes that all keys begin with alike: the window, in
// the changes of a step. They would settle no comparison.
func (o *overlay) sharedPrefix() int {
	var first []byte
	shared := -1
	for id := range o.next {
		e := o.at(id)
		if e.flags&flagOccupied == 0 {
			continue
		}
		key := o.key(e)
		if shared < 0 {
			first, shared = key, len(key)
			continue
		}
		shared = min(shared, len(key))
		for i := range shared {
			if key[i] != first[i] {
				shared = i
				break
			}
		}
		if shared == 0 {
			break
		}
	}
	return max(shared, 0)
}

// ahead is how many of what is in no order in memory are brought nearer to the processor at
// once.
const ahead = 64

// approach brings entries nearer to the processor, as touch does. In line the compiler would
// see that nobody needs what it reads.
//
//go:noinline
func (o *overlay) approach(ids []sortedID) (sink uint64) {
	for _, s := range ids {
		e := o.at(s.id)
		sink += uint64(e.keyLen) + uint64(e.change)
	}
	return sink
}

// touch brings what find will need for each of hashes nearer to the processor.
// One lookup waits for its slot and then for its entry; the loops here wait for
// none, so that many misses are under way at once.
func (o *overlay) touch(hashes []uint64) (sink uint64) {
	if len(o.slots) == 0 {
		return 0
	}
	const block = 256
	for len(hashes) > 0 {
		n := min(len(hashes), block)
		for _, h := range hashes[:n] {
			sink += o.group(o.home(uint32(h >> 32)))[0]
		}
		for _, h := range hashes[:n] {
			bits := uint32(h >> 32)
			g := o.group(o.home(bits))
			if m := g.match(bits); m != 0 {
				if id := uint32(g[mathbits.TrailingZeros32(m)&(groupSize-1)]); id != 0 {
					e := o.at(id - 1)
					sink += uint64(e.keyLen) + uint64(e.change)
				}
			}
		}
		hashes = hashes[n:]
	}
	return sink
}
