package state

const (
	firstBlock = 1 << 10
	lastBlock  = 256 << 10
)

// arena keeps byte strings in blocks, without an object for each. Strings are
// never freed one by one; waste counts those that are no longer needed.
type arena struct {
	blocks [][]byte
	bytes  int64 // capacity of all blocks
	waste  int64
}

// blobRef names a string in an arena. The zero value is the empty string.
type blobRef struct {
	block, off, size uint32
}

// put copies b into the arena.
func (a *arena) put(b []byte) blobRef {
	if len(b) == 0 {
		return blobRef{}
	}
	last := len(a.blocks) - 1
	if last < 0 || len(a.blocks[last])+len(b) > cap(a.blocks[last]) {
		size := firstBlock
		if last >= 0 {
			size = min(max(2*cap(a.blocks[last]), firstBlock), lastBlock)
		}
		size = max(size, len(b))
		a.blocks = append(a.blocks, make([]byte, 0, size))
		a.bytes += int64(size)
		last++
	}
	block := a.blocks[last]
	ref := blobRef{block: uint32(last), off: uint32(len(block)), size: uint32(len(b))}
	a.blocks[last] = append(block, b...)
	return ref
}

// get returns the string itself: not to be appended to.
func (a *arena) get(r blobRef) []byte {
	if r.size == 0 {
		return []byte{}
	}
	return a.blocks[r.block][r.off : r.off+r.size : r.off+r.size]
}

// reset forgets all strings and keeps the largest block.
func (a *arena) reset() {
	if n := len(a.blocks); n > 0 {
		block := a.blocks[n-1][:0]
		clear(a.blocks)
		a.blocks = append(a.blocks[:0], block)
		a.bytes = int64(cap(block))
	}
	a.waste = 0
}
