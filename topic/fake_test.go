package topic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

// fakePartition is an appender too simple to be wrong. It holds a producer to
// the log's rules: sequences without gaps, one batch in flight.
type fakePartition struct {
	appender // of what is not faked
	name     log.TopicPartition

	mu      sync.Mutex
	records []fakeRecord
	batches []int // records in each
	next    int32 // sequence expected
	flying  bool
	write   func(records []fakeRecord) error // asked before a batch is taken
	acked   func(ctx context.Context) error  // called without mu
}

type fakeRecord struct {
	time       int64
	key, value string
	noKey      bool
	deleted    bool
	headers    []Header
}

func (p *fakePartition) Name() log.TopicPartition { return p.name }

func (p *fakePartition) Encode(b *log.BatchBuilder, producer log.Producer) ([]byte, error) {
	return b.Finish(producer), nil
}

func (p *fakePartition) Write(b []byte) (log.AppendResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.appendLocked(b)
}

// Append waits for the owner of the producer id in vain.
func (p *fakePartition) Append(ctx context.Context, b []byte) (log.AppendResult, error) {
	<-ctx.Done()
	return log.AppendResult{}, errors.Join(log.ErrUnknownOwner, ctx.Err())
}

func (p *fakePartition) HighWatermark() log.Offset {
	if p.acked != nil {
		return 0
	}
	return math.MaxInt64
}

func (p *fakePartition) Acked(ctx context.Context, _ log.Offset) error {
	p.setFlying(true)
	defer p.setFlying(false)
	return p.acked(ctx)
}

func (p *fakePartition) setFlying(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying = is
}

func (p *fakePartition) appendLocked(b []byte) (log.AppendResult, error) {
	if p.flying {
		return log.AppendResult{}, errors.New("a second batch in flight")
	}
	batch, err := log.ParseBatch(b)
	if err != nil {
		return log.AppendResult{}, err
	}
	var records []fakeRecord
	for it := batch.Records(); it.Next(); {
		r := fakeRecord{time: it.Time, key: string(it.Key), value: string(it.Value), noKey: it.Key == nil, deleted: it.Value == nil}
		for _, h := range it.Headers() {
			r.headers = append(r.headers, Header{Key: h.Key, Value: slices.Clone(h.Value)})
		}
		records = append(records, r)
	}
	if p.write != nil {
		if err := p.write(records); err != nil {
			return log.AppendResult{}, err
		}
	}
	if batch.Producer.Sequence != p.next {
		return log.AppendResult{}, fmt.Errorf("%w: %d, not %d", log.ErrOutOfOrder, batch.Producer.Sequence, p.next)
	}
	p.next = int32((int64(p.next) + int64(len(records))) % (1 << 31))
	base := log.Offset(len(p.records))
	p.records = append(p.records, records...)
	p.batches = append(p.batches, len(records))
	end := log.Offset(len(p.records))
	return log.AppendResult{Base: base, Last: end - 1, End: log.Position{Offset: end}}, nil
}

// values returns what the partition holds, in order.
func (p *fakePartition) values() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var v []string
	for _, r := range p.records {
		v = append(v, r.value)
	}
	return v
}

// sizes returns the number of records of each batch.
func (p *fakePartition) sizes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.batches)
}

// fakeNode hands out one producer id.
type fakeNode struct {
	Node
	released   []log.ProducerID
	releaseErr error
}

func (n *fakeNode) ReleaseProducer(id log.ProducerID) error {
	n.released = append(n.released, id)
	return n.releaseErr
}

// text is a codec of strings that refuses those that begin with "bad".
type text struct{}

var errBad = errors.New("bad text")

func (text) Append(dst []byte, s string) ([]byte, error) {
	if len(s) >= 3 && s[:3] == "bad" {
		return dst, errBad
	}
	return append(dst, s...), nil
}

func (text) Decode(src []byte) (string, error) {
	if len(src) >= 3 && string(src[:3]) == "bad" {
		return "", errBad
	}
	return string(src), nil
}

// fake returns a producer of t onto n fake partitions.
func fake(tb testing.TB, t Topic[string, string], n int, o ProducerOptions) (*Producer[string, string], []*fakePartition) {
	partitions := make([]*fakePartition, n)
	for i := range partitions {
		partitions[i] = &fakePartition{name: log.TopicPartition{Topic: t.Name(), Partition: PartitionID(i)}}
	}
	o, err := o.withDefaults(n)
	require.NoError(tb, err)
	p := newProducer(&fakeNode{}, t, text{}, text{}, 0, partitions, o)
	tb.Cleanup(func() { p.Close() })
	return p, partitions
}
