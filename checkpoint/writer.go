package checkpoint

import (
	"fmt"
	"math"
	"sync"

	"github.com/thalweg/thalweg/log"
)

// Writer appends to one partition inside the transaction of the open checkpoint. It
// is the only one of its attempt on this node, because it stamps the sequence
// numbers. For concurrent use by the node's tasks.
type Writer struct {
	s    *Session
	part *log.Partition

	// plain writers belong to no transaction: output of a job that runs at least once.
	plain bool

	mu       sync.Mutex // taken before Session.mu; held across an append, which is what orders them
	gen      int64      // the checkpoint of sequence and end
	sequence int32      // of the next record
	end      log.Position
	wrote    bool // something in gen
	broken   bool // an append failed: its batch may be there or not
}

// Write appends what b holds as part of checkpoint n, which must be the open one (the
// one after the last completed), and resets b. It does not wait for the sync policy: the
// checkpoint does. The error is of this call: ErrGeneration when n is not open,
// ErrAttemptOver once the attempt is over. Any failure of the append itself also
// ends the attempt, since nobody knows whether the batch is there.
func (w *Writer) Write(n int64, b *log.BatchBuilder) (log.Position, error) {
	pos, err, broken := w.write(n, b)
	if broken {
		w.s.fail(err)
	}
	return pos, err
}

func (w *Writer) write(n int64, b *log.BatchBuilder) (end log.Position, err error, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.s.admits(n); err != nil {
		return log.Position{}, fmt.Errorf("write %v: %w", w.part.Name(), err), false
	}
	if b.Len() == 0 {
		return w.part.End(), nil, false
	}
	if n != w.gen {
		w.gen, w.sequence, w.wrote = n, 0, false
	}
	p := log.Producer{ID: log.NoProducer}
	if !w.plain {
		p = log.Producer{ID: w.s.txn(n), Sequence: w.sequence, Transactional: true}
	}
	count := b.Len()
	batch, err := w.part.Encode(b, p)
	var at log.AppendResult
	if err == nil {
		at, err = w.part.Write(batch)
	}
	if err != nil {
		w.broken = true
		return log.Position{}, fmt.Errorf("write %v: %w", w.part.Name(), err), true
	}
	b.Reset()
	// Sequence numbers wrap after 2^31-1, as the batch format has it.
	w.sequence = int32((int64(w.sequence) + int64(count)) & math.MaxInt32)
	w.end, w.wrote = at.End, true
	return at.End, nil, false
}

// MaxBatchBytes is the size of the largest encoded batch that Write takes.
func (w *Writer) MaxBatchBytes() int { return w.part.MaxBatchBytes() }

// written tells how far the writer got in checkpoint n. A Write that began before has
// finished when it returns.
func (w *Writer) written(n int64) (end log.Position, wrote bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end, w.wrote && w.gen == n
}

// failed tells whether an append failed.
func (w *Writer) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}
