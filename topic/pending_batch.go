package topic

import (
	"time"

	"github.com/thalweg/thalweg/log"
)

// entry is an encoded record on its way into a batch.
type entry struct {
	time       int64 // Unix milliseconds
	key, value []byte
	headers    []Header
	partition  int // or anyPartition
}

// anyPartition marks a record without key, which goes where the producer likes.
const anyPartition = -1

// maxSize is an upper bound of what e adds to a batch; it takes every variable
// length for the longest.
func (e *entry) maxSize() int {
	const (
		fixed     = 5 + 1 + 10 + 5 + 5 + 5 + 5 // length, attributes, time, offset, key, value, headers
		perHeader = 5 + 5
	)
	return fixed + e.payload() + perHeader*len(e.headers)
}

// payload is the number of bytes of e's key, value and headers.
func (e *entry) payload() int {
	n := len(e.key) + len(e.value)
	for i := range e.headers {
		n += len(e.headers[i].Key) + len(e.headers[i].Value)
	}
	return n
}

// outcome is what became of a batch. It outlives the batch, whose memory is used
// again, and exists only where somebody waits for it.
type outcome struct {
	done chan struct{} // closed once res and err are set
	res  log.AppendResult
	err  error
}

// callback is a function to tell the result of one record.
type callback struct {
	f     func(Result)
	index int32 // of the record in its batch
	time  int64
}

// pendingBatch is a batch being filled, waiting or in flight. The mutex of its
// partitionQueue guards it until it is in flight; then it is the writing
// goroutine's, except for outcome.
type pendingBatch struct {
	builder   log.BatchBuilder
	reserved  int       // bytes of the memory budget it holds
	opened    time.Time // when the first record came
	queued    int       // records nobody waits for, which Flush reports
	callbacks []callback
	outcome   *outcome

	condition *check     // what WriteIf asks before it is written; nil for most
	repeats   log.Offset // where its first record is already, for a repetition; else -1
}

func newPendingBatch(reserved int) *pendingBatch {
	return &pendingBatch{reserved: reserved, repeats: -1}
}

// fits tells whether a record of size bytes may be added. The first always may.
func (b *pendingBatch) fits(size, limit int) bool {
	return b.builder.Len() == 0 || b.builder.Size()+size <= limit
}

// awaited returns the batch's outcome, making it on the first call.
func (b *pendingBatch) awaited() *outcome {
	if b.outcome == nil {
		b.outcome = &outcome{done: make(chan struct{})}
	}
	return b.outcome
}

func (b *pendingBatch) reset() {
	b.builder.Reset()
	clear(b.callbacks)
	b.callbacks = b.callbacks[:0]
	b.queued, b.outcome, b.condition, b.repeats = 0, nil, nil, -1
}
