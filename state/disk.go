package state

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// defaultBlockCache is the block cache of Disk(0).
	defaultBlockCache = 64 << 20

	// memTableSize is the largest memtable. Small ones insert faster, since more
	// of their skip list is in the processor's cache; Pebble starts a database
	// with 256 KiB and doubles, so a small store stays small.
	memTableSize = 8 << 20

	// batchEntry is what an entry of a batch takes besides its key and value, at most.
	batchEntry = 16

	// openFiles bounds the files that the databases of a Backend keep open.
	openFiles = 1000
)

// Disk keeps databases on disk, in Pebble, all under one block cache of
// cacheBytes; zero means 64 MiB.
//
// Pebble's write-ahead log is off. After a crash a database is as it was at its
// last flush, and its store replays the changelog from there. The first failure
// to write is final: every later Apply returns it until the database is opened
// again.
func Disk(cacheBytes int64) Backend { return newDisk(cacheBytes, nil, nil) }

// newDisk is Disk on a given file system; nil means the operating system's.
func newDisk(cacheBytes int64, fs vfs.FS, logger *slog.Logger) *diskBackend {
	if cacheBytes <= 0 {
		cacheBytes = defaultBlockCache
	}
	if fs == nil {
		fs = vfs.Default
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &diskBackend{cacheBytes: cacheBytes, fs: fs, memTableSize: memTableSize, logger: logger}
}

type diskBackend struct {
	cacheBytes   int64
	fs           vfs.FS
	memTableSize uint64
	logger       *slog.Logger

	mu     sync.Mutex // guards the fields below
	open   int        // databases that use the caches
	blocks *pebble.Cache
	files  *pebble.FileCache
}

// Open may be called concurrently for several directories: most of its time it waits for the disk.
func (b *diskBackend) Open(dir string) (DB, error) {
	b.acquire()
	db := &diskDB{backend: b, failing: make(chan struct{})}
	var err error
	if db.pebble, err = pebble.Open(dir, b.options(db)); err != nil {
		b.release()
		return nil, fmt.Errorf("state: open %s: %w (a store can be deleted: it is rebuilt from its changelog)", dir, err)
	}
	return db, nil
}

func (b *diskBackend) options(db *diskDB) *pebble.Options {
	o := &pebble.Options{
		FS:                          orderedFS{b.fs},
		Cache:                       b.blocks,
		FileCache:                   b.files,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                b.memTableSize,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		Logger:                      pebbleLogger{db: db, logger: b.logger},
		EventListener: &pebble.EventListener{
			BackgroundError: db.fail,
			DataCorruption:  func(info pebble.DataCorruptionInfo) { db.fail(errors.New(info.String())) },
			FlushEnd:        func(pebble.FlushInfo) { db.lookup.moved() },
			CompactionEnd:   func(pebble.CompactionInfo) { db.lookup.moved() },
		},
	}
	for i := range o.Levels {
		// Ten bits a key: a miss costs a block read in one of a hundred cases.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// acquire takes hold of the caches for one more database.
func (b *diskBackend) acquire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		b.blocks = pebble.NewCache(b.cacheBytes)
		b.files = pebble.NewFileCache(4, openFiles)
	}
	b.open++
}

// release gives up one database's hold on the caches.
func (b *diskBackend) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open--; b.open > 0 {
		return
	}
	b.files.Unref()
	b.blocks.Unref()
	b.files, b.blocks = nil, nil
}

// diskDB is a database in Pebble.
type diskDB struct {
	backend *diskBackend
	pebble  *pebble.DB
	lookup  lookup

	failMu  sync.Mutex
	failure error         // first failed write; set once, under failMu
	failing chan struct{} // closed when failure is set

	mu       sync.RWMutex // held for reading while pebble is used, for writing by Close
	closed   bool
	closeErr error
}

// fail records the first failure of Pebble's background work. It is called with
// Pebble's locks held.
func (db *diskDB) fail(err error) {
	db.failMu.Lock()
	defer db.failMu.Unlock()
	if db.failure == nil {
		db.failure = err
		close(db.failing)
	}
}

func (db *diskDB) failed() error {
	db.failMu.Lock()
	defer db.failMu.Unlock()
	return db.failure
}

func (db *diskDB) Get(key []byte) ([]byte, bool, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return nil, false, ErrClosed
	}
	return db.lookup.get(db.pebble, key)
}

func (db *diskDB) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		db.mu.RLock()
		defer db.mu.RUnlock()
		if db.closed {
			yield(Entry{}, ErrClosed)
			return
		}
		rangeOf(db.pebble, lo, hi)(yield)
	}
}

func (db *diskDB) Snapshot() (Snapshot, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return nil, ErrClosed
	}
	return diskSnapshot{db.pebble.NewSnapshot()}, nil
}

// diskSnapshot is a snapshot of Pebble's.
type diskSnapshot struct{ *pebble.Snapshot }

func (s diskSnapshot) Get(key []byte) ([]byte, bool, error) { return getFrom(s.Snapshot, key) }

func (s diskSnapshot) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return rangeOf(s.Snapshot, lo, hi)
}

func getFrom(r pebble.Reader, key []byte) ([]byte, bool, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	owned := append([]byte{}, value...)
	return owned, true, closer.Close()
}

func rangeOf(r pebble.Reader, lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
		if err != nil {
			yield(Entry{}, err)
			return
		}
		stopped := false
		for ok := it.First(); ok && !stopped; ok = it.Next() {
			value, err := it.ValueAndErr()
			stopped = !yield(Entry{Key: it.Key(), Value: value}, err) || err != nil
		}
		if err := it.Close(); err != nil && !stopped {
			yield(Entry{}, err)
		}
	}
}

func (db *diskDB) Apply(b Batch) error {
	if err := b.check(); err != nil {
		return err
	}
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return ErrClosed
	}
	if err := db.failed(); err != nil {
		return fmt.Errorf("state: an earlier write failed: %w", err)
	}
	size := 0
	for _, e := range b.Entries {
		size += len(e.Key) + len(e.Value) + batchEntry
	}
	pb := db.pebble.NewBatchWithSize(size + batchEntry)
	defer pb.Close()
	if b.Clear {
		if err := db.clear(pb); err != nil {
			return err
		}
	}
	for _, r := range b.Ranges {
		if err := pb.DeleteRange(r.Lo, r.Hi, nil); err != nil {
			return err
		}
	}
	for _, e := range b.Entries {
		var err error
		if e.Value == nil {
			err = pb.Delete(e.Key, nil)
		} else {
			err = pb.Set(e.Key, e.Value, nil)
		}
		if err != nil {
			return err
		}
	}
	err := pb.Commit(pebble.NoSync)
	db.lookup.applied()
	return err
}

// clear adds the removal of every key there is to pb. Later operations of the
// same batch come after it. The range begins with the first key rather than with
// none: of a range that begins with an empty key, a compaction of Pebble built with
// its own checks (as under the race detector) forgets the part before the last key.
func (db *diskDB) clear(pb *pebble.Batch) error {
	it, err := db.pebble.NewIter(nil)
	if err != nil {
		return err
	}
	if it.First() {
		first := bytes.Clone(it.Key())
		it.Last()
		err = pb.DeleteRange(first, append(bytes.Clone(it.Key()), 0), nil)
	}
	return errors.Join(err, it.Close())
}

// Flush begins to write the memtable to disk.
func (db *diskDB) Flush() (done <-chan struct{}, err error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return nil, ErrClosed
	}
	return db.pebble.AsyncFlush()
}

// flushAndWait makes all that was applied durable. Pebble retries a flush for
// ever, so the first failure must end the wait.
func (db *diskDB) flushAndWait() error {
	if err := db.failed(); err != nil {
		return err
	}
	done, err := db.pebble.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-db.failing:
		return db.failed()
	}
}

func (db *diskDB) Checkpoint(dir string) error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return ErrClosed
	}
	if err := db.flushAndWait(); err != nil {
		return fmt.Errorf("state: checkpoint to %s: %w", dir, err)
	}
	if err := db.pebble.Checkpoint(dir); err != nil {
		return fmt.Errorf("state: checkpoint to %s: %w", dir, err)
	}
	return nil
}

func (db *diskDB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return db.closeErr
	}
	db.closed = true
	err := db.flushAndWait()
	db.closeErr = errors.Join(err, db.lookup.close(), db.pebble.Close())
	db.backend.release()
	return db.closeErr
}

// orderedFS makes what a directory holds durable before a marker is created in it.
// Pebble's markers name a file made just before them and are made durable
// together with it; a crash in between may keep the marker and lose the file's
// name, where the file system does not keep such changes in order, and then the
// database does not open any more.
type orderedFS struct{ vfs.FS }

func (fs orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(fs.PathBase(name), "marker.") {
		dir, err := fs.OpenDir(fs.PathDir(name))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return nil, err
		}
	}
	return fs.FS.Create(name, category)
}

// pebbleLogger passes on what Pebble deems an error and drops its chatter.
type pebbleLogger struct {
	db     *diskDB
	logger *slog.Logger
}

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("state: pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble would end the process, mostly after a failed
// write of its manifest. The process is not ours to end: the database is failed
// instead, as by any other write that cannot be done.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	l.logger.Error("state: pebble failed", "message", message)
	l.db.fail(errors.New(message))
}
