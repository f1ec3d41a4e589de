package state

const (
	firstBlock = 1 << 10
	lastBlock  = 256 << 10
)

// arena keeps byte strings in blocks, without an object for each. Strings are
// never freed one by one; waste counts those that are no longer needed.
type arena struct {
	blocks [][]byte
	spare  [][]byte // of an earlier use, the newest block last
	bytes  int64    // capacity of the blocks
	waste  int64
}

// blobRef names a string in an arena. The zero value is the empty string.
type blobRef struct {
	block, off, size uint32
}

// put copies parts into the arena, one behind the other.
func (a *arena) put(parts ...[]byte) blobRef {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	if n == 0 {
		return blobRef{}
	}
	last := len(a.blocks) - 1
	if last < 0 || len(a.blocks[last])+n > cap(a.blocks[last]) {
		a.grow(n)
		last++
	}
	block := a.blocks[last]
	ref := blobRef{block: uint32(last), off: uint32(len(block)), size: uint32(n)}
	for _, b := range parts {
		block = append(block, b...)
	}
	a.blocks[last] = block
	return ref
}

// grow adds a block that has room for n bytes.
func (a *arena) grow(n int) {
	if last := len(a.spare) - 1; last >= 0 && cap(a.spare[last]) >= n {
		a.blocks = append(a.blocks, a.spare[last][:0])
		a.spare[last] = nil
		a.spare = a.spare[:last]
	} else {
		size := firstBlock
		if last := len(a.blocks) - 1; last >= 0 {
			size = min(max(2*cap(a.blocks[last]), firstBlock), lastBlock)
		}
		a.blocks = append(a.blocks, make([]byte, 0, max(size, n)))
	}
	a.bytes += int64(cap(a.blocks[len(a.blocks)-1]))
}

// get returns the string itself: not to be appended to.
func (a *arena) get(r blobRef) []byte {
	if r.size == 0 {
		return []byte{}
	}
	return a.blocks[r.block][r.off : r.off+r.size : r.off+r.size]
}

// reset forgets all strings and keeps the blocks, to be filled again.
func (a *arena) reset() {
	a.spare = append(a.spare, a.blocks...)
	clear(a.blocks)
	a.blocks, a.bytes, a.waste = a.blocks[:0], 0, 0
}
