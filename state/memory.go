package state

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// Memory keeps databases in memory. What a database holds goes when it is
// closed, so a store reopened on it replays its changelog; copies made by
// Checkpoint live as long as the Backend and are opened by their directory.
func Memory() Backend {
	return &memoryBackend{copies: make(map[string][]*page), open: make(map[string]bool)}
}

type memoryBackend struct {
	mu     sync.Mutex // guards the fields below
	copies map[string][]*page
	open   map[string]bool
}

func (b *memoryBackend) Open(dir string) (DB, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[dir] {
		return nil, fmt.Errorf("state: open %s: already open", dir)
	}
	b.open[dir] = true
	db := &memoryDB{backend: b, dir: dir}
	pages := b.copies[dir]
	db.pages.Store(&pages)
	return db, nil
}

// maxPage is the number of entries above which a page is split.
const maxPage = 256

// page is a run of entries in ascending order. Neither a page nor what its
// entries point to changes once it can be reached from memoryDB.pages.
type page struct{ entries []Entry }

func (p *page) first() []byte { return p.entries[0].Key }

// memoryDB is a list of pages. Apply copies the pages it changes and publishes a
// new list, so that readers need no lock and see one state throughout.
type memoryDB struct {
	backend *memoryBackend
	dir     string

	mu     sync.Mutex              // serialises Apply, Checkpoint and Close
	pages  atomic.Pointer[[]*page] // written by the holder of mu
	closed atomic.Bool             // written by the holder of mu
}

func (db *memoryDB) Get(key []byte) ([]byte, bool, error) {
	if db.closed.Load() {
		return nil, false, ErrClosed
	}
	return memorySnapshot(*db.pages.Load()).Get(key)
}

// Snapshot returns the list of pages, which do not change.
func (db *memoryDB) Snapshot() (Snapshot, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	return memorySnapshot(*db.pages.Load()), nil
}

// memorySnapshot are the pages of a database at some instant.
type memorySnapshot []*page

func (pages memorySnapshot) Get(key []byte) ([]byte, bool, error) {
	i := pageOf(pages, key)
	if i < 0 {
		return nil, false, nil
	}
	entries := pages[i].entries
	j, found := slices.BinarySearchFunc(entries, key, compareEntryKey)
	if !found {
		return nil, false, nil
	}
	return bytes.Clone(entries[j].Value), true, nil
}

func (pages memorySnapshot) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := max(pageOf(pages, lo), 0); i < len(pages); i++ {
			for _, e := range pages[i].entries {
				if bytes.Compare(e.Key, lo) < 0 {
					continue
				}
				if hi != nil && bytes.Compare(e.Key, hi) >= 0 {
					return
				}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (memorySnapshot) Close() error { return nil }

// pageOf returns the last page whose first key is not above key, or -1.
func pageOf(pages []*page, key []byte) int {
	return sort.Search(len(pages), func(i int) bool { return bytes.Compare(pages[i].first(), key) > 0 }) - 1
}

func compareEntryKey(e Entry, key []byte) int { return bytes.Compare(e.Key, key) }

func (db *memoryDB) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if db.closed.Load() {
			yield(Entry{}, ErrClosed)
			return
		}
		memorySnapshot(*db.pages.Load()).Range(lo, hi)(yield)
	}
}

func (db *memoryDB) Apply(b Batch) error {
	if err := b.check(); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return ErrClosed
	}
	old := *db.pages.Load()
	if b.Clear {
		old = nil
	}
	for _, r := range b.Ranges {
		old = withoutRange(old, r)
	}
	pages := make([]*page, 0, len(old)+len(b.Entries)/maxPage+1)
	changes := b.Entries
	for i, p := range old {
		n := len(changes)
		if i+1 < len(old) {
			n = sort.Search(len(changes), func(j int) bool {
				return bytes.Compare(changes[j].Key, old[i+1].first()) >= 0
			})
		}
		if n == 0 {
			pages = append(pages, p)
			continue
		}
		pages = appendPages(pages, mergeEntries(p.entries, changes[:n]))
		changes = changes[n:]
	}
	if len(old) == 0 {
		pages = appendPages(pages, mergeEntries(nil, changes))
	}
	db.pages.Store(&pages)
	return nil
}

// withoutRange returns pages without the keys of r.
func withoutRange(pages []*page, r Range) []*page {
	var left []*page
	for _, p := range pages {
		lo, _ := slices.BinarySearchFunc(p.entries, r.Lo, compareEntryKey)
		hi, _ := slices.BinarySearchFunc(p.entries, r.Hi, compareEntryKey)
		switch {
		case lo == hi:
			left = append(left, p)
		case hi-lo < len(p.entries):
			left = append(left, &page{slices.Concat(p.entries[:lo], p.entries[hi:])})
		}
	}
	return left
}

// mergeEntries returns entries with changes made, sharing what did not change.
func mergeEntries(entries, changes []Entry) []Entry {
	merged := make([]Entry, 0, len(entries)+len(changes))
	for _, c := range changes {
		n, found := slices.BinarySearchFunc(entries, c.Key, compareEntryKey)
		merged = append(merged, entries[:n]...)
		key := c.Key
		entries = entries[n:]
		if found {
			key = entries[0].Key
			entries = entries[1:]
		}
		if c.Value == nil {
			continue
		}
		if !found {
			key = bytes.Clone(key)
		}
		merged = append(merged, Entry{Key: key, Value: append([]byte{}, c.Value...)})
	}
	return append(merged, entries...)
}

// appendPages appends entries in pages of at most maxPage.
func appendPages(pages []*page, entries []Entry) []*page {
	n := (len(entries) + maxPage - 1) / maxPage // as equal in size as can be
	for ; n > 0; n-- {
		size := (len(entries) + n - 1) / n
		pages = append(pages, &page{entries: entries[:size:size]})
		entries = entries[size:]
	}
	return pages
}

func (db *memoryDB) Checkpoint(dir string) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return ErrClosed
	}
	db.backend.mu.Lock()
	defer db.backend.mu.Unlock()
	if _, exists := db.backend.copies[dir]; exists || db.backend.open[dir] {
		return fmt.Errorf("state: checkpoint to %s: already exists", dir)
	}
	db.backend.copies[dir] = *db.pages.Load()
	return nil
}

func (db *memoryDB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Swap(true) {
		return nil
	}
	db.pages.Store(new([]*page))
	db.backend.mu.Lock()
	defer db.backend.mu.Unlock()
	delete(db.backend.open, db.dir)
	return nil
}
