package topic

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/thalweg/thalweg/log"
)

// versions is where the newest record of each key of a partition is: the fold of what
// readers of committed data see.
//
// It is exact under anything that happens to the log. Compaction keeps the newest
// record of a key with its offset; a tombstone it drops leaves the key without a
// version, as the tombstone did, and whoever had not read that far starts over. Records
// that were deleted are below the log start.
// What is not decided yet is never part of it, but read anew by each tail.
type versions struct {
	partition appender

	mu     sync.Mutex // held while it reads; taken before the partition's locks
	next   log.Offset // all below is in latest
	latest map[string]log.Offset
}

// catchUp reads what has become stable since the last call.
func (v *versions) catchUp() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.catchUpLocked()
}

func (v *versions) catchUpLocked() error {
	for {
		start, horizon := v.partition.Start(), v.partition.Horizon()
		if v.latest == nil || v.next < start || v.next < horizon {
			v.latest, v.next = map[string]log.Offset{}, start // what was not read is gone
		}
		err := v.readStable()
		switch {
		case errors.Is(err, log.ErrOffsetOutOfRange) && v.next < v.partition.Start():
		case err == nil && v.partition.Horizon() != horizon:
			v.latest = nil
		default:
			return err
		}
		// Records were deleted while it read, or tombstones of what it had read.
	}
}

func (v *versions) readStable() error {
	r := v.partition.Reader(v.next, log.ReadCommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			v.next = r.Offset()
			return nil
		}
		if err != nil {
			return err
		}
		it := b.Records()
		for it.Next() {
			switch {
			case it.Key == nil:
			case it.Value == nil:
				delete(v.latest, string(it.Key))
			default:
				v.latest[string(it.Key)] = it.Offset
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
		v.next = r.Offset()
	}
}

// tail looks for the newest record of one key up to the very end of the partition.
type tail struct {
	v      *versions
	key    []byte
	stable log.Offset   // of the newest among stable records, or NoVersion
	reader *log.Reader  // of what is not stable
	later  []laterWrite // of the key, in order
}

// laterWrite is a record of the key that was not stable.
type laterWrite struct {
	offset        log.Offset
	deleted       bool
	transactional bool
	producer      log.ProducerID
	base          log.Offset // of its batch
}

// tail reads up to the present end. Close it when done.
func (v *versions) tail(key []byte) (*tail, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.catchUpLocked(); err != nil {
		return nil, err
	}
	t := &tail{v: v, key: key, stable: NoVersion, reader: v.partition.Reader(v.next, log.ReadAppended)}
	if offset, ok := v.latest[string(key)]; ok {
		t.stable = offset
	}
	if err := t.read(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// read reads on to the present end.
func (t *tail) read() error {
	for {
		b, err := t.reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		it := b.Records()
		for it.Next() {
			if it.Key != nil && bytes.Equal(it.Key, t.key) {
				t.later = append(t.later, laterWrite{
					offset: it.Offset, deleted: it.Value == nil,
					transactional: b.Producer.Transactional, producer: b.Producer.ID, base: b.Base,
				})
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
}

// version returns the offset of the newest record of the key, or NoVersion, while end
// holds the partition still. A record that may become one is an *undecidedError.
func (t *tail) version(end log.Tail) (log.Offset, error) {
	if err := t.read(); err != nil {
		return 0, err
	}
	newest := t.stable
	if newest < t.v.partition.Start() {
		newest = NoVersion
	}
	for _, w := range t.later {
		if w.transactional {
			open, aborted := end.Transaction(w.producer, w.base)
			if open {
				return 0, &undecidedError{w.offset}
			}
			if aborted {
				continue
			}
		}
		newest = w.offset
		if w.deleted {
			newest = NoVersion
		}
	}
	return newest, nil
}

func (t *tail) close() { t.reader.Close() }
