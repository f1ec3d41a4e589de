package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/thalweg/thalweg/log"
)

// Mark names a committed checkpoint and the changelog position it reaches.
// Checkpoints are compared attempt first.
type Mark struct {
	Attempt, N int64
	End        log.Position
}

// before tells whether m is an earlier checkpoint than b.
func (m Mark) before(b Mark) bool {
	return m.Attempt < b.Attempt || m.Attempt == b.Attempt && m.N < b.N
}

// StoreOptions describes a store to OpenStore. DB and Changelog are needed; the
// other fields may be left zero.
type StoreOptions struct {
	// DB is the store's own database. It stays the caller's, who closes it after
	// the store.
	DB DB

	// Changelog is the partition the store follows.
	Changelog *log.Partition

	// Cache takes the values that leave the overlay of the store's tables. Nil
	// drops them.
	Cache *Cache

	// Name appears in errors and events.
	Name string

	// Manual does without a goroutine: Follow does its work before it returns.
	Manual bool

	// Linger is how long the follower may let a mark wait, unless StepRecords wait, so
	// that more of them become one step, a key that changes often is written once, and
	// one that is soon deleted never. Zero means 5 s, negative not at all.
	Linger time.Duration

	// StepRecords is the number of changelog records that are enough for a step. Zero
	// means 512 Ki.
	StepRecords int64

	// MaxLag is the number of changelog records by which the follower may lag
	// before Follow blocks. Zero means 4 Mi.
	MaxLag int64

	// StepBytes bounds the memory for the changes of one step. Zero means 64 MiB.
	StepBytes int64

	// FlushBytes is how much changelog the database may be ahead of its last
	// flush, and so how much is read again after a crash. Zero means 64 MiB.
	FlushBytes int64

	// Logger receives structured events. Nil discards them.
	Logger *slog.Logger
}

func (o StoreOptions) withDefaults() (StoreOptions, error) {
	if o.DB == nil {
		return o, errors.New("state: StoreOptions.DB is nil")
	}
	if o.Changelog == nil {
		return o, errors.New("state: StoreOptions.Changelog is nil")
	}
	for _, field := range [...]struct {
		name  string
		value *int64
		zero  int64
	}{
		{"MaxLag", &o.MaxLag, 4 << 20},
		{"StepBytes", &o.StepBytes, 64 << 20},
		{"StepRecords", &o.StepRecords, 512 << 10},
		{"FlushBytes", &o.FlushBytes, 64 << 20},
	} {
		if *field.value < 0 {
			return o, fmt.Errorf("state: StoreOptions.%s is negative: %d", field.name, *field.value)
		}
		if *field.value == 0 {
			*field.value = field.zero
		}
	}
	if o.Linger == 0 {
		o.Linger = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Stats counts what a store has done since it was opened.
type Stats struct {
	Steps    int64 // times the store was brought forward
	Records  int64 // changelog records read
	Applied  int64 // entries written to the database, after coalescing
	Rebuilds int64 // times it was cleared and replayed from the start of the changelog
}

// Store is the durable side of one shard of one stateful step, with the follower
// that brings it forward. Its methods may be called concurrently.
type Store struct {
	o      StoreOptions
	cancel context.CancelFunc // ends the goroutine counted by wg
	wg     sync.WaitGroup
	wake   chan struct{} // one slot: there is a new target, or a reason to hurry

	batchEntries int // maxBatchEntries, or less in tests

	step      chan struct{} // semaphore: held while the database is changed
	changes   *changes      // guarded by step; of the step under way
	entries   []Entry       // guarded by step; of the batch being filled
	unflushed int64         // guarded by step; changelog bytes applied since the last flush

	mu       sync.Mutex // guards the fields below; taken after step, not held across I/O
	progress progress
	mark     Mark          // the last checkpoint that was reached exactly
	target   Mark          // the newest checkpoint Follow was told of
	queued   time.Time     // when target was first ahead of mark; zero when it is not
	hurry    bool          // the follower shall not linger
	moved    chan struct{} // closed and replaced when mark or failed changes
	durable  log.Offset    // the database has all below on disk
	flush    pendingFlush  // what will raise durable
	failed   error         // first fault of the follower; set once
	closed   bool
	stats    Stats
}

// OpenStore opens the store kept in o.DB. It stays where it is until CatchUp or
// Follow.
func OpenStore(o StoreOptions) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		o:     o,
		wake:  make(chan struct{}, 1),
		step:  make(chan struct{}, 1),
		moved: make(chan struct{}),

		batchEntries: maxBatchEntries,
	}
	value, ok, err := o.DB.Get(markKey)
	if err != nil {
		return nil, s.wrap("read the mark", err)
	}
	if ok {
		if s.progress, err = parseProgress(value); err != nil {
			return nil, s.wrap("read the mark", err)
		}
	}
	s.durable = s.progress.done.Offset // it was just read from disk
	if s.progress.complete() {
		s.mark = s.progress.target
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if !o.Manual {
		s.wg.Go(func() { pprof.Do(ctx, pprof.Labels("store", o.Name), s.follow) })
	}
	return s, nil
}

// wrap says in which store an error arose, and what was being done.
func (s *Store) wrap(doing string, err error) error {
	return fmt.Errorf("state: store %q: %s: %w", s.o.Name, doing, err)
}

// Mark is the last checkpoint the store has reached. While a step is under way,
// Get and Range may already see some of what comes after it.
func (s *Store) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// Stats returns what the store has done since it was opened.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// usable returns why the store cannot be used, or nil.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.wrap("use", ErrClosed)
	}
	return s.failed
}

// Get returns the encoded value of a state key as of Mark or later. The value is
// the caller's.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	if err := s.usable(); err != nil {
		return nil, false, err
	}
	var space [64]byte
	value, ok, err = s.o.DB.Get(append(append(space[:0], kindValue), key...))
	if err != nil {
		return nil, false, s.wrap(fmt.Sprintf("get %x", key), err)
	}
	if !ok {
		return nil, false, nil
	}
	value, err = valueBody(value)
	if err != nil {
		return nil, false, s.wrap(fmt.Sprintf("get %x", key), err)
	}
	return value, true, nil
}

// Range walks the state keys in [lo, hi) with their encoded values, ascending, as
// of Mark or later. A nil lo means from the first key, a nil hi to the last. A
// walk must end before the store's database is closed.
func (s *Store) Range(lo, hi []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := s.usable(); err != nil {
			yield(Entry{}, err)
			return
		}
		end := valuesEnd
		if hi != nil {
			end = append(bytes.Clone(valuesBegin), hi...)
		}
		for e, err := range s.o.DB.Range(append(bytes.Clone(valuesBegin), lo...), end) {
			if err == nil {
				e.Key = e.Key[1:]
				e.Value, err = valueBody(e.Value)
			}
			if err != nil {
				yield(Entry{}, s.wrap("range", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Close stops the follower and waits for it; the database stays open. What was
// queued is not applied: the next store on this database replays it.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		s.movedLocked()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

// movedLocked wakes those who wait for the store to move.
func (s *Store) movedLocked() {
	close(s.moved)
	s.moved = make(chan struct{})
}
