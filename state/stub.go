package state

import (
	"context"
	"iter"
	"log/slog"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// Backend opens the databases that stores are kept in.
type Backend interface {
	Open(dir string) (DB, error)
}

// Memory keeps stores in memory; Disk keeps them in Pebble, all under one block cache.
func Memory() Backend               { panic("todo") }
func Disk(cacheBytes int64) Backend { panic("todo") }

// DB is an ordered key-value database. See API: Apply is atomic, in order, also across a crash, and need not be synced.
type DB interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Range(lo, hi []byte) iter.Seq2[Entry, error] // [lo, hi), nil hi means to the end
	Apply(b Batch) error
	Checkpoint(dir string) error
	Close() error
}

// Entry is a key and a value, valid until the next iteration step.
type Entry struct{ Key, Value []byte }

// Batch is a set of changes in ascending order of key; a nil value deletes.
type Batch struct{ Entries []Entry }

// Mark is how far a store has come: a committed checkpoint and the changelog position it reaches.
type Mark struct {
	Attempt, N int64
	End        log.Position
}

// StoreOptions describes a store to OpenStore.
type StoreOptions struct {
	DB        DB
	Changelog *log.Partition
	Cache     *Cache // may be nil
	Name      string // in errors and cache keys
	Manual    bool   // no goroutine: Follow does its work inline (tests in virtual time)
	Logger    *slog.Logger
}

// Store is the durable side of one shard of one stateful step, with the follower
// that brings it forward. Its own mark is kept in the database with the data.
type Store struct{}

func OpenStore(o StoreOptions) (*Store, error) { panic("todo") }

// Mark is the store's own position.
func (s *Store) Mark() Mark { panic("todo") }

// CatchUp brings the store to exactly to (a rollback or a restart). A store ahead of it, or
// whose position is not in the changelog, is rebuilt from the whole changelog.
func (s *Store) CatchUp(ctx context.Context, to Mark) error { panic("todo") }

// Follow tells the follower that to is committed. It does not block while the
// follower lags less than its bound, and slows the caller beyond it.
func (s *Store) Follow(ctx context.Context, to Mark) error { panic("todo") }

// Empty tells whether the store held no key at the last CatchUp and misses need not ask it.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) { panic("todo") }
func (s *Store) Range(lo, hi []byte) iter.Seq2[Entry, error]       { panic("todo") }
func (s *Store) Close() error                                      { panic("todo") }

// Cache is the node's shared read cache.
type Cache struct{}

func NewCache(bytes int64) (*Cache, error) { panic("todo") }
func (c *Cache) Close()                    { panic("todo") }

// Table is the state of one task in one keyed store: live values in an overlay over the
// store. Only its task calls it. Keys are encoded keys; hash is Hash(key), computed once by whoever made the key.
type Table[V any] struct{}

// Hash is the hash tables expect.
func Hash(key []byte) uint64 { panic("todo") }

func NewTable[V any](s *Store, c codec.Codec[V]) *Table[V] { panic("todo") }

// Get returns the live value, valid until the next call; it may be read only.
func (t *Table[V]) Get(hash uint64, key []byte) (v *V, ok bool, err error) { panic("todo") }

// Update returns the live value to change in place, zero where the key had none, and marks it changed.
func (t *Table[V]) Update(hash uint64, key []byte) (v *V, existed bool, err error) { panic("todo") }
func (t *Table[V]) Delete(hash uint64, key []byte) error                           { panic("todo") }

// Barrier encodes what changed since the last barrier, in some order, one call of put per key; a nil value is a tombstone.
// n is the checkpoint these changes belong to.
func (t *Table[V]) Barrier(n int64, put func(key, value []byte) error) error { panic("todo") }

// Passed tells the table how far its store is; entries not changed since may leave the overlay when it is over budget.
func (t *Table[V]) Passed(m Mark) { panic("todo") }

// Bytes is the memory the overlay holds, and Dirty that of entries that cannot leave it yet.
func (t *Table[V]) Bytes() int64 { panic("todo") }
func (t *Table[V]) Dirty() int64 { panic("todo") }

// WindowTable is a Table keyed by window start and key, so that closing a window is a range scan.
type WindowTable[V any] struct{}

func NewWindowTable[V any](s *Store, c codec.Codec[V]) *WindowTable[V] { panic("todo") }

func (t *WindowTable[V]) Update(start int64, hash uint64, key []byte) (v *V, existed bool, err error) {
	panic("todo")
}

// CloseWindow calls emit for every key of the window, in ascending key order, then removes the window.
func (t *WindowTable[V]) CloseWindow(start int64, emit func(key []byte, v *V) error) error {
	panic("todo")
}

// Windows returns the starts of all windows that hold a key, ascending.
func (t *WindowTable[V]) Windows() []int64 { panic("todo") }

// Oldest is the start of the oldest window.
func (t *WindowTable[V]) Oldest() (start int64, ok bool)                           { panic("todo") }
func (t *WindowTable[V]) Barrier(n int64, put func(key, value []byte) error) error { panic("todo") }
func (t *WindowTable[V]) Passed(m Mark)                                            { panic("todo") }
func (t *WindowTable[V]) Bytes() int64                                             { panic("todo") }
func (t *WindowTable[V]) Dirty() int64                                             { panic("todo") }
