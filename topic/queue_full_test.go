package topic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// While the disk is full answers and deliveries are refused for certain, nothing is
// counted, and all goes on once there is room.
func TestQueueOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, qs := openQueues(t, nil, topic.QueuesOptions{SegmentBytes: 1 << 10})
		q := openJobs(t, qs, topic.QueueOptions{Lock: time.Hour, InFlight: 1000})
		var values []string
		for i := range 200 {
			values = append(values, fmt.Sprint(i))
		}
		appendJobs(t, n, values...)
		n.fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate && strings.Contains(op.Name, "__thalweg_queue_work-0") {
				return syscall.ENOSPC // for the next segment of the queue's state
			}
			return nil
		})
		var held []*topic.Received[string, string] // delivered, and not acknowledged
		acked, full := map[string]bool{}, false
		for !full {
			for d, err := range q.Receive(t.Context()) {
				if err != nil {
					require.ErrorIs(t, err, syscall.ENOSPC)
					require.NotErrorIs(t, err, topic.ErrUnknown)
					full = true
					break
				}
				require.Equal(t, 1, d.Count)
				err := d.Ack(t.Context())
				if acked[d.Value] = err == nil; err != nil {
					require.ErrorIs(t, err, syscall.ENOSPC)
					require.NotErrorIs(t, err, topic.ErrUnknown)
					held, full = append(held, d), true
				}
				break
			}
		}
		before := partitionStatus(t, q)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for _, err := range q.Receive(ctx) {
			require.True(t, errors.Is(err, syscall.ENOSPC) || errors.Is(err, context.DeadlineExceeded), "%v", err)
			break
		}
		cancel()
		require.Equal(t, before, partitionStatus(t, q), "nothing has happened")

		n.fs.SetHook(nil)
		for _, d := range held {
			require.NoError(t, d.Ack(t.Context()), "the record is still its receiver's")
			acked[d.Value] = true
		}
		for partitionStatus(t, q).Acknowledged < int64(len(values)) {
			d := receive(t, q)
			require.Equal(t, 1, d.Count)
			require.False(t, acked[d.Value])
			require.NoError(t, d.Ack(t.Context()))
			acked[d.Value] = true
		}
		require.Len(t, acked, len(values))
		require.Equal(t, topic.QueuePartitionStatus{Start: 200, Delivered: 200, Acknowledged: 200}, partitionStatus(t, q))
	})
}

// undecidedTx writes transactions whose commit nobody learns: it is decided when the test
// says so.
type undecidedTx struct {
	id      log.ProducerID
	touched []*log.Partition
}

func (w *undecidedTx) Begin() error              { return nil }
func (*undecidedTx) ID() (log.ProducerID, error) { return 1, nil }
func (w *undecidedTx) Write(p *log.Partition, b *log.BatchBuilder) error {
	if b.Len() == 0 {
		return nil
	}
	batch, err := p.Encode(b, log.Producer{ID: w.id, Transactional: true})
	if err == nil {
		_, err = p.Write(batch)
	}
	w.touched = append(w.touched, p)
	b.Reset()
	return err
}
func (w *undecidedTx) Commit(context.Context, []group.Commit) error { return topic.ErrUnknown }
func (w *undecidedTx) Abort() error                                 { return nil }
func (w *undecidedTx) Close() error                                 { return nil }

// undecidedNode has one transaction, of that kind.
type undecidedNode struct {
	queueNode
	tx *undecidedTx
}

func (n undecidedNode) Transact(ctx context.Context, f func(*topic.Tx) error) error {
	return topic.NewTxProducer(n, n.tx, nil).Transact(ctx, f)
}

// While it is open whether a record has become a dead letter, nobody gets it and no
// snapshot takes the place of its change: whichever it was counts at the next opening.
func TestDeadLetterWhoseOutcomeIsUnknown(t *testing.T) {
	for _, commit := range []bool{true, false} {
		l, err := log.Open("data", log.Options{FS: vfs.NewMem(), SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 16})
		require.NoError(t, err)
		defer l.Close()
		n := &node{log: l}
		tx := &undecidedTx{id: 77}
		small := topic.QueuesOptions{SnapshotBytes: 100, SegmentBytes: 1 << 10}
		letters := topic.New[[]byte, []byte]("letters")
		o := topic.QueueOptions{DeadLetters: letters, Backoff: -1, Lock: time.Hour, InFlight: 1000}
		qs := topic.NewQueues(undecidedNode{queueNode{n}, tx}, small)
		q, err := qs.Open(jobs, "work", o)
		require.NoError(t, err)
		var values []string
		for i := range 100 {
			values = append(values, fmt.Sprint(i))
		}
		appendJobs(t, n, values...)
		bad := receive(t, q)
		require.Equal(t, "0", bad.Value)
		require.ErrorIs(t, bad.Reject(t.Context()), topic.ErrUnknown)
		require.ErrorIs(t, bad.Ack(t.Context()), topic.ErrDeliveryOver)
		for _, v := range values[1:] { // enough for many snapshots
			d := receive(t, q)
			require.Equal(t, v, d.Value)
			require.NoError(t, d.Ack(t.Context()))
		}
		require.NoError(t, q.Close())
		qs.Close()
		for _, p := range tx.touched { // as the next opening of the node decides
			_, err := p.EndTransaction(tx.id, commit)
			require.NoError(t, err)
		}

		qs = topic.NewQueues(queueNode{n}, small)
		q, err = qs.Open(jobs, "work", o)
		require.NoError(t, err)
		if !commit {
			d := receive(t, q)
			require.Equal(t, "0", d.Value)
			require.NoError(t, d.Ack(t.Context()))
		}
		s := partitionStatus(t, q)
		require.EqualValues(t, 100, s.Start)
		require.EqualValues(t, 100, s.Acknowledged+s.Rejected)
		require.Equal(t, commit, s.Rejected == 1)
		require.NoError(t, q.Close())
		qs.Close()
	}
}
