package topic

import (
	"fmt"
	"sync"

	"github.com/thalweg/thalweg/log"
)

// Tx is an open transaction: all that is sent through it, to any number of topics, and
// the positions of the consumers it commits become true together, or not at all. Its
// methods may be called concurrently.
//
// Records are on their way to their partitions before the transaction ends, but readers
// of committed data see none of them until it is committed, and none ever if it is
// aborted. The first error of a Tx sticks: it can only be aborted then.
//
// It holds one batch of each partition it sends to in memory, of at most 128 KiB or
// one record.
type Tx struct {
	p *TxProducer

	mu      sync.Mutex     // guards the fields below; held across appends
	ended   bool           // Commit or Abort has been called
	err     error          // the first; set once
	id      log.ProducerID // asked of the writer once; 0 before
	batches map[*log.Partition]*log.BatchBuilder

	positions map[*consumer]txPositions // that are part of it
}

// Send writes one record as part of the transaction.
func (tx *Tx) Send[K, V any](t Topic[K, V], k K, v V) error {
	return tx.SendRecord(t, Record[K, V]{Key: k, Value: v})
}

// Delete writes a tombstone for k as part of the transaction.
func (tx *Tx) Delete[K, V any](t Topic[K, V], k K) error {
	return tx.SendRecord(t, Record[K, V]{Key: k, Deleted: true})
}

// SendRecord is Send for a record with headers, a time or neither key nor value.
func (tx *Tx) SendRecord[K, V any](t Topic[K, V], r Record[K, V]) error {
	target, err := txTopicOf(tx.p, t)
	if err != nil {
		return tx.fail(err)
	}
	var s scratch
	partitions, err := target.now()
	if err != nil {
		return tx.fail(err)
	}
	e, err := target.encode(&s, &r, len(partitions)) // the user's code runs without a lock
	if err != nil {
		return tx.fail(err)
	}
	part := target.place(&e, partitions)
	limit := sizeLimit{part.MaxBatchBytes() - batchOverhead, "the log's MaxBatchBytes"}
	if err := limit.check(t.Name(), &e, part.MaxRecordBytes()); err != nil {
		return tx.fail(err)
	}
	return tx.add(part, &e)
}

// add adds e to the batch of its partition, and writes that where it is full.
func (tx *Tx) add(part *log.Partition, e *entry) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.usableLocked(); err != nil {
		return err
	}
	b := tx.batches[part]
	if b == nil {
		b = &log.BatchBuilder{}
		tx.batches[part] = b
	}
	if limit := min(defaultBatchBytes, part.MaxBatchBytes()); b.Len() > 0 && b.Size()+e.maxSize() > limit {
		if err := tx.p.writer.Write(part, b); err != nil {
			return tx.failLocked(fmt.Errorf("topic: send in a transaction: %w", err))
		}
	}
	b.Add(e.time, e.key, e.value, e.headers)
	return nil
}

// usableLocked is nil while the transaction takes more.
func (tx *Tx) usableLocked() error {
	if tx.ended {
		return fmt.Errorf("%w: begin another one", ErrTxEnded)
	}
	return tx.err
}

func (tx *Tx) fail(err error) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.failLocked(err)
}

func (tx *Tx) failLocked(err error) error {
	if usable := tx.usableLocked(); usable != nil {
		return usable
	}
	tx.err = err
	return err
}

// Flush writes what is still in memory to its partitions, for those who want to know
// that the log takes it before they go on. Commit does the same.
func (tx *Tx) Flush() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.usableLocked(); err != nil {
		return err
	}
	if err := tx.writeLocked(); err != nil {
		return tx.failLocked(err)
	}
	return nil
}

// writeLocked writes all batches.
func (tx *Tx) writeLocked() error {
	for part, b := range tx.batches {
		if err := tx.p.writer.Write(part, b); err != nil {
			return fmt.Errorf("topic: send in a transaction: %w", err)
		}
	}
	return nil
}

// end ends the sending. With write it writes what is in memory, unless the transaction
// has failed before.
func (tx *Tx) end(write bool) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	err := tx.usableLocked()
	if err == nil && write {
		err = tx.writeLocked()
	}
	tx.ended, tx.batches = true, nil
	return err
}
