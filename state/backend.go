package state

import (
	"bytes"
	"errors"
	"iter"
)

var (
	// ErrClosed is returned by a database or store that has been closed.
	ErrClosed = errors.New("state: closed")

	// ErrVersion is returned for data in a format this version does not know.
	ErrVersion = errors.New("state: unknown format version")

	// ErrNotInChangelog is returned when a store is sent to a position that its
	// changelog does not hold.
	ErrNotInChangelog = errors.New("state: position is not in the changelog")
)

// Backend opens the databases that stores are kept in.
type Backend interface {
	// Open opens the database in dir, creating it. A directory has one open
	// database at a time; those of several are opened concurrently.
	Open(dir string) (DB, error)
}

// DB is an ordered key-value database. Keys are not empty and are compared byte by
// byte; values may be empty. Get, Range and Snapshot may be called concurrently with
// each other and with Apply; Apply, Checkpoint and Close have one caller at a time.
type DB interface {
	// Get returns the value of key, which is then the caller's.
	Get(key []byte) (value []byte, ok bool, err error)

	// Range walks the entries in [lo, hi) in ascending order, as they were when
	// it began. A nil lo means from the first, a nil hi to the last.
	Range(lo, hi []byte) iter.Seq2[Entry, error]

	// Snapshot returns the database as it is now, to be read while it goes on.
	Snapshot() (Snapshot, error)

	// Apply makes the changes of b, all or none, also across a crash. It need not
	// be durable on return, but batches become durable in the order they were
	// applied: what survives a crash is a prefix of them. b stays the caller's.
	Apply(b Batch) error

	// Checkpoint writes a copy of the database, as of the last Apply, that Open
	// accepts. dir must not exist.
	Checkpoint(dir string) error

	// Close makes durable what the database keeps beyond Close. A Range must have
	// ended, and each Snapshot been closed. Close may be repeated and returns the first result.
	Close() error
}

// Snapshot is a database as it was at one instant. Get and Range are those of DB and may
// be called concurrently; Close comes after them, and before that of the database. A snapshot
// that is kept for long keeps what was overwritten since.
type Snapshot interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Range(lo, hi []byte) iter.Seq2[Entry, error]
	Close() error
}

// Flusher is implemented by databases that keep applied batches in memory for a
// while.
type Flusher interface {
	// Flush begins to make all that was applied durable and does not wait for it.
	// done is closed once it is; after a failed write that may be never.
	Flush() (done <-chan struct{}, err error)
}

// Entry is a key and a value, valid until the next iteration step.
type Entry struct{ Key, Value []byte }

// Batch is a set of changes in strictly ascending order of key, the empty key not
// among them. A nil value deletes the key; deleting one that is absent is no
// error.
type Batch struct {
	// Clear removes every key before the entries are applied.
	Clear bool

	// Ranges are removed before the entries are applied. They ascend and do not overlap.
	Ranges []Range

	Entries []Entry
}

// Range is a range of keys, [Lo, Hi). Lo is not empty and below Hi.
type Range struct{ Lo, Hi []byte }

// check returns an error when the keys of b are not as Apply demands.
func (b Batch) check() error {
	var last []byte
	for _, r := range b.Ranges {
		if len(r.Lo) == 0 || bytes.Compare(r.Lo, last) < 0 || bytes.Compare(r.Lo, r.Hi) >= 0 {
			return errRanges
		}
		last = r.Hi
	}
	if len(b.Entries) > 0 && len(b.Entries[0].Key) == 0 {
		return errEmptyKey
	}
	for i := 1; i < len(b.Entries); i++ {
		if string(b.Entries[i-1].Key) >= string(b.Entries[i].Key) {
			return errUnordered
		}
	}
	return nil
}

var (
	errEmptyKey  = errors.New("state: a batch with an empty key")
	errRanges    = errors.New("state: the ranges of a batch are empty, overlap or are not in ascending order")
	errUnordered = errors.New("state: the keys of a batch are not in ascending order")
)
