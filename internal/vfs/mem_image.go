package vfs

import (
	"math/rand/v2"
	"slices"
)

const (
	pageBytes   = 4096
	sectorBytes = 512 // what a disk writes whole or not at all
)

// pageEnd rounds n up to a whole number of pages.
func pageEnd(n int64) int64 { return (n + pageBytes - 1) / pageBytes * pageBytes }

// memImage is the content of a file: what readers see, and what the disk has.
// Mem.mu guards it.
type memImage struct {
	// data holds the current bytes up to some point at or after the last page
	// written; what lies between its end and length is zero. Bytes past length
	// are zero, so that a file grows into zeros.
	data   []byte
	length int64
	used   pageSet // pages written since they were last zero; data is zero elsewhere
	space  pageSet // pages that have disk space

	// views are the mappings. Each holds data itself, or a former data that was
	// too short for a later mapping and is written along with it.
	views map[*memMapping]struct{}

	// disk holds the pages of the last successful sync, without those of zeros.
	disk       map[int64]*[pageBytes]byte
	diskLength int64

	dirty pageSet // pages that differ from disk and that the next sync writes
	lost  pageSet // pages that differ from disk and that a failed sync gave up

	// cut is the least length the file was cut to since the last sync, or -1. Pages past it are new ones: they follow
	// zeros, not the disk's pages, which return only with the old length.
	cut int64
}

func newMemImage() *memImage {
	return &memImage{
		views: map[*memMapping]struct{}{},
		disk:  map[int64]*[pageBytes]byte{},
		cut:   -1,
	}
}

func (m *memImage) read(p []byte, off int64) int {
	n := max(0, min(int64(len(p)), m.length-off))
	p = p[:n]
	if off < int64(len(m.data)) {
		p = p[copy(p, m.data[off:]):]
	}
	clear(p)
	return int(n)
}

// write sets the bytes at off and extends the file where needed.
func (m *memImage) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	m.grow(end)
	copy(m.data[off:], p)
	for view := range m.views {
		if off < int64(len(view.data)) && &view.data[0] != &m.data[0] {
			copy(view.data[off:], p)
		}
	}
	m.length = max(m.length, end)
	for page := off / pageBytes; page*pageBytes < end; page++ {
		m.used.add(page)
		m.dirty.add(page)
		m.lost.remove(page)
	}
}

// truncate sets the length. What is cut off becomes zero.
func (m *memImage) truncate(size int64) {
	if size < m.length {
		m.zero(size)
		if m.cut < 0 || size < m.cut {
			m.cut = size
		}
	}
	m.length = size
}

// zero clears all bytes from off on. Whole pages are no longer dirty: that they
// are gone is told by cut.
func (m *memImage) zero(off int64) {
	clearUsed := func(data []byte) {
		for page := range m.used.all() {
			from, to := max(page*pageBytes, off), min((page+1)*pageBytes, int64(len(data)))
			if from < to {
				clear(data[from:to])
			}
		}
	}
	clearUsed(m.data)
	for view := range m.views {
		if len(m.data) == 0 || &view.data[0] != &m.data[0] {
			clearUsed(view.data)
		}
	}
	whole := pageEnd(off) / pageBytes
	if last := off / pageBytes; last < whole && m.used.has(last) {
		m.dirty.add(last)
		m.lost.remove(last)
	}
	for _, pages := range []pageSet{m.used, m.dirty, m.lost, m.space} {
		pages.removeFrom(whole)
	}
}

// grow makes data reach at least to end.
func (m *memImage) grow(end int64) {
	if end <= int64(len(m.data)) {
		return
	}
	m.replace(max(pageEnd(end), min(2*int64(len(m.data)), pageEnd(m.length))))
}

// view returns memory of size bytes that has the file's content and follows it.
func (m *memImage) view(size int64) []byte {
	if size > int64(len(m.data)) {
		m.replace(pageEnd(size))
	}
	return m.data[:size:size]
}

// replace moves the content to new memory. It touches used pages only, so that a
// large mapping of a small file costs next to nothing.
func (m *memImage) replace(size int64) {
	data := make([]byte, size)
	for page := range m.used.all() {
		copy(data[page*pageBytes:], m.page(page))
	}
	m.data = data
}

// page returns the current bytes of a used page.
func (m *memImage) page(page int64) []byte {
	return m.data[page*pageBytes : min((page+1)*pageBytes, int64(len(m.data)))]
}

// sync makes the disk's image the current one, except for lost pages.
func (m *memImage) sync() {
	m.dropCut()
	for page := range m.dirty.all() {
		m.writeBack(page)
	}
	clear(m.dirty)
	m.diskLength = m.length
}

// dropCut makes the truncation of the file durable.
func (m *memImage) dropCut() {
	if m.cut < 0 {
		return
	}
	for page, content := range m.disk {
		switch {
		case page*pageBytes >= m.cut:
			delete(m.disk, page)
		case (page+1)*pageBytes > m.cut:
			clear(content[m.cut-page*pageBytes:])
		}
	}
	m.diskLength = min(m.diskLength, m.cut)
	m.cut = -1
}

func (m *memImage) writeBack(page int64) {
	content := m.disk[page]
	if content == nil {
		content = new([pageBytes]byte)
		m.disk[page] = content
	}
	copy(content[:], m.page(page))
}

// syncFailed gives up what is dirty: the kernel marks such pages clean, so that
// no later sync writes them unless they are written again.
func (m *memImage) syncFailed() {
	for page := range m.dirty.all() {
		m.lost.add(page)
	}
	clear(m.dirty)
}

// writeBackSome is the kernel writing dirty pages when it likes.
func (m *memImage) writeBackSome(random *rand.Rand) {
	for page := range m.dirty.all() {
		if m.cut >= 0 && (page+1)*pageBytes > m.cut {
			return // waits for the truncation
		}
		if random.IntN(2) == 0 {
			m.writeBack(page)
			m.dirty.remove(page)
		}
	}
}

// clone copies everything but the mappings.
func (m *memImage) clone() *memImage {
	c := *m
	c.views = map[*memMapping]struct{}{}
	for _, pages := range []*pageSet{&c.used, &c.space, &c.dirty, &c.lost} {
		*pages = slices.Clone(*pages)
	}
	c.disk = make(map[int64]*[pageBytes]byte, len(m.disk))
	for page, content := range m.disk {
		copied := *content
		c.disk[page] = &copied
	}
	c.data = make([]byte, m.used.end()*pageBytes)
	for page := range m.used.all() {
		copy(c.page(page), m.page(page))
	}
	return &c
}

// crash returns what a machine finds on the disk after a power cut now.
func (m *memImage) crash(random *rand.Rand) *memImage {
	after := newMemImage()
	keepPage := pageChooser(random)

	// The length is that of the last sync, the present one, or the one between.
	lengths := []int64{m.diskLength, m.length}
	if m.cut >= 0 {
		lengths = append(lengths, m.cut)
	}
	choice := random.IntN(len(lengths))
	length := lengths[choice]
	truncated := m.cut >= 0 && choice > 0

	fresh := func(page int64) bool { return m.cut >= 0 && page*pageBytes >= m.cut }
	for page, content := range m.disk {
		if truncated && fresh(page) {
			continue
		}
		copied := *content
		if truncated && (page+1)*pageBytes > m.cut {
			clear(copied[m.cut-page*pageBytes:])
		}
		after.disk[page] = &copied
	}
	for page := range m.dirty.union(m.lost) {
		if fresh(page) && !truncated {
			continue // written into space the file got after the truncation
		}
		content := after.disk[page]
		if content == nil {
			content = new([pageBytes]byte)
		}
		current := m.page(page)
		for sector, keep := range keepPage() {
			if at := sector * sectorBytes; keep && at < len(current) {
				copy(content[at:at+sectorBytes], current[at:])
			}
		}
		after.disk[page] = content
	}

	after.length, after.diskLength = length, length
	for page, content := range after.disk {
		from := page * pageBytes
		if from >= length {
			delete(after.disk, page)
			continue
		}
		if from+pageBytes > length {
			clear(content[length-from:])
		}
		after.used.add(page)
	}
	after.data = make([]byte, after.used.end()*pageBytes)
	for page := range after.used.all() {
		copy(after.page(page), after.disk[page][:])
		after.space.add(page)
	}
	for page := range m.space.all() {
		if page*pageBytes < length {
			after.space.add(page)
		}
	}
	return after
}

// pageChooser returns a function that says of one page after the other which of
// its sectors reached the disk. All or none of a file's pages is as likely as a
// mixture, which alone would almost never give either.
func pageChooser(random *rand.Rand) func() [pageBytes / sectorBytes]bool {
	mode := random.IntN(4)
	return func() (sectors [pageBytes / sectorBytes]bool) {
		fate := mode // 0 dropped, 1 kept
		if mode >= 2 {
			fate = random.IntN(3)
		}
		for i := range sectors {
			sectors[i] = fate == 1 || fate == 2 && random.IntN(2) == 0
		}
		return sectors
	}
}
