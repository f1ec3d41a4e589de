package topic

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/thalweg/thalweg/internal/queue"
	"github.com/thalweg/thalweg/log"
)

// queueJournal is the log of the changes of one partition of a queue: a partition of
// an internal topic. Its first record is a snapshot, and so is every one after which
// the records before are deleted.
type queueJournal struct {
	partition *log.Partition
	topic     string
	buf       []byte

	snapshotBytes int // size of the last snapshot
	changesBytes  int // written since
	least         int // bytes of changes that are worth a snapshot

	// frozen says that a transaction with changes is not known to have ended one way
	// or the other: no snapshot can take their place.
	frozen bool
}

// defaultSnapshotAfter is how many bytes of changes are worth a snapshot, at the least.
const defaultSnapshotAfter = 1 << 20

// fold reads the journal. The state is nil where nothing was written yet.
func (j *queueJournal) fold() (*queue.State, error) {
	r := j.partition.Reader(j.partition.Start(), log.ReadCommitted)
	defer r.Close()
	var s *queue.State
	for {
		b, err := r.Next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", j.partition.Name(), err)
		}
		it := b.Records()
		for it.Next() {
			e, err := queue.Decode(it.Value)
			if err == nil {
				s, err = e.Fold(s)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s at offset %d: %w", j.partition.Name(), it.Offset, err)
			}
			if e.Snapshot != nil {
				if j.topic == "" {
					j.topic = e.Topic
				}
				if e.Topic != j.topic {
					return nil, fmt.Errorf("%w: it is a queue over topic %q: use another name for one over %q", ErrQueueInUse, e.Topic, j.topic)
				}
				j.snapshotBytes, j.changesBytes = len(it.Value), 0
			} else {
				j.changesBytes += len(it.Value)
			}
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", j.partition.Name(), err)
		}
	}
}

// encode returns the record that says changes, valid until the next call.
func (j *queueJournal) encode(changes []queue.Change) []byte {
	j.buf = queue.AppendChanges(j.buf[:0], changes)
	j.changesBytes += len(j.buf)
	return j.buf
}

// append writes changes and returns when they are as durable as the topic asks.
// unknown tells of a failed write that it may count all the same.
func (j *queueJournal) append(now int64, changes []queue.Change) (unknown bool, err error) {
	return j.write(now, j.encode(changes))
}

func (j *queueJournal) write(now int64, record []byte) (unknown bool, err error) {
	offline := j.partition.Failed() != nil
	// Nothing ends the wait but its end: a change that is not decided would hold up
	// all that follow.
	_, err = j.partition.AppendRecords(context.Background(), log.Record{Time: now, Value: record})
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, log.ErrOffline):
		return !offline, err // the write or the sync that failed may have been this one
	case errors.Is(err, log.ErrClosed):
		return true, err
	}
	return false, err
}

// due tells whether a snapshot is worth writing.
func (j *queueJournal) due() bool {
	return !j.frozen && j.changesBytes > max(j.least, 4*j.snapshotBytes)
}

// snapshot writes s and deletes what it replaces. All changes of s must be written.
func (j *queueJournal) snapshot(now int64, s *queue.State) error {
	j.changesBytes = 0 // also after an error: the next attempt comes when as much was written again
	j.buf = queue.AppendSnapshot(j.buf[:0], j.topic, s)
	before := j.partition.End().Offset
	if _, err := j.write(now, j.buf); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	j.snapshotBytes = len(j.buf)
	if err := j.partition.DeleteBefore(before); err != nil {
		return fmt.Errorf("delete what a snapshot replaced: %w", err)
	}
	return nil
}
