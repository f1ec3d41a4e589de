package state

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// lookup finds single keys in a database, most of which are not there: keys that are new. A
// Get of Pebble's does not ask the filters of the lowest level, where nearly all keys are,
// and so reads a block for each of them. An iterator can be told to, but costs more to make
// than a look-up. It is kept from one to the next, and made anew once the database has changed.
type lookup struct {
	changes atomic.Int64 // of the database: what was applied, and what moved from memory to files and between them

	mu   sync.Mutex // guards the fields below
	it   *pebble.Iterator
	seen int64 // of changes, when it was made
}

// get is a Get of db. What was applied before it began is seen. Callers at the same time find their
// keys the usual way.
func (l *lookup) get(db *pebble.DB, key []byte) (value []byte, found bool, err error) {
	if !l.mu.TryLock() {
		return getFrom(db, key)
	}
	defer l.mu.Unlock()
	if changes := l.changes.Load(); l.it == nil || l.seen != changes {
		if err := l.closeLocked(); err != nil {
			return nil, false, err
		}
		if l.it, err = db.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, err
		}
		l.seen = changes
	}
	if !l.it.SeekPrefixGE(key) {
		return nil, false, l.failed(l.it.Error())
	}
	if !bytes.Equal(l.it.Key(), key) {
		return nil, false, nil
	}
	if value, err = l.it.ValueAndErr(); err != nil {
		return nil, false, l.failed(err)
	}
	return append([]byte{}, value...), true, nil
}

// failed gives up an iterator that had an error, if it is one.
func (l *lookup) failed(err error) error {
	if err != nil {
		_ = l.closeLocked()
	}
	return err
}

// applied is called after each write: the iterator would miss it, and holds files and memory
// that may be free now.
func (l *lookup) applied() {
	l.changes.Add(1)
	if l.mu.TryLock() {
		_ = l.closeLocked() // what it may have to say, the look-up was told
		l.mu.Unlock()
	}
}

// moved is called when what the iterator reads has moved: there is a shorter way to it now, and
// what it holds could be free. It may be called with Pebble's locks held.
func (l *lookup) moved() { l.changes.Add(1) }

// close is called when no look-up is under way any more.
func (l *lookup) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closeLocked()
}

func (l *lookup) closeLocked() (err error) {
	if l.it != nil {
		err = l.it.Close()
		l.it = nil
	}
	return err
}
