package topic

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// Producer writes records of one topic. Its methods may be called concurrently;
// records that one goroutine sends to one partition keep the order of its calls.
//
// Partitions that are added to the topic are used from the next record on; a key may then
// belong to another one than before.
//
// Producers are idempotent: no record is stored twice. An error means that the
// record is not in the log, unless it matches ErrUnknown.
type Producer[K, V any] struct {
	encoder[K, V]
	node    Node
	id      log.ProducerID
	sender  *sender
	scratch sync.Pool // of *scratch

	closing  sync.Once
	closeErr error // what Close returns; set under closing
}

// NewProducer returns a producer for t on n, creating the topic if need be. ctx
// bounds the wait for a producer id and nothing else. Close the producer when
// done with it.
func NewProducer[K, V any](ctx context.Context, n Node, t Topic[K, V], o ProducerOptions) (*Producer[K, V], error) {
	keys, values, err := t.Codecs(nil)
	if err := errors.Join(t.Err(), err); err != nil {
		return nil, err
	}
	partitions, err := open(n, t.s)
	if err != nil {
		return nil, fmt.Errorf("topic: open %q: %w", t.Name(), err)
	}
	o, err = o.withDefaults(len(partitions))
	if err != nil {
		return nil, err
	}
	var compressor *log.Compressor // the topic's
	if o.Compression != 0 {
		if compressor, err = log.NewCompressor(o.Compression, o.CompressionLevel); err != nil {
			return nil, err
		}
	}
	first := partitions[0] // its limits are the same for all of them
	largest := first.MaxBatchBytes()
	o.BatchBytes = min(o.BatchBytes, largest)
	id, err := acquire(ctx, n, t.Name(), o.Name)
	if err != nil {
		return nil, fmt.Errorf("topic: acquire a producer id for %q: %w", t.Name(), err)
	}
	p := newProducer(n, t, keys, values, id, partitions, o)
	p.sender.growth = growth{n, t.Name()}
	p.sender.grow() // from now on it hears of more
	p.sender.compressor = compressor
	if largest -= batchOverhead; largest < p.sender.limit.bytes {
		p.sender.limit = sizeLimit{largest, "the log's MaxBatchBytes"}
	}
	p.sender.maxRecord = first.MaxRecordBytes
	if o.Name != "" {
		p.sender.resume(p.sender.partitions())
	}
	return p, nil
}

// acquire returns the producer id of a name, or a new one where that is empty. The
// id of a name is for one topic: '/' is not part of a topic's name.
func acquire(ctx context.Context, n Node, topic, name string) (log.ProducerID, error) {
	if name == "" {
		return n.AcquireProducer(ctx)
	}
	return n.AcquireNamedProducer(ctx, topic+"/"+name)
}

// newProducer returns a producer with resolved options.
func newProducer[K, V any, P appender](n Node, t Topic[K, V], keys codec.Codec[K], values codec.Codec[V], id log.ProducerID, partitions []P, o ProducerOptions) *Producer[K, V] {
	return &Producer[K, V]{
		encoder: newEncoder(t, keys, values, o.Now),
		node:    n,
		id:      id,
		sender:  newSender(t.Name(), id, partitions, o),
		scratch: sync.Pool{New: func() any { return &scratch{key: make([]byte, 0, 64), value: make([]byte, 0, 256)} }},
	}
}

// Send writes one record and returns when it is as durable as the topic asks.
// Concurrent calls share batches. When ctx ends while the record is on its way
// the error matches ErrUnknown.
func (p *Producer[K, V]) Send(ctx context.Context, k K, v V) error {
	_, _, err := p.SendRecord(ctx, Record[K, V]{Key: k, Value: v})
	return err
}

// Delete writes a tombstone for k and waits as Send does.
func (p *Producer[K, V]) Delete(ctx context.Context, k K) error {
	_, _, err := p.SendRecord(ctx, Record[K, V]{Key: k, Deleted: true})
	return err
}

// SendRecord is Send for a record with headers, a time or neither key nor
// value. It returns where the record is stored.
func (p *Producer[K, V]) SendRecord(ctx context.Context, r Record[K, V]) (partition int, offset int64, err error) {
	t, err := p.put(ctx, &r, want{outcome: true, hurry: true})
	if err != nil {
		return -1, -1, err
	}
	return p.sender.await(ctx, t)
}

// Queue hands over one record and returns before it is written. It waits only
// while ProducerOptions.MemoryBytes are used up. An error means that the record
// was not taken; what happens to it after that, Flush reports.
func (p *Producer[K, V]) Queue(ctx context.Context, k K, v V) error {
	_, err := p.put(ctx, &Record[K, V]{Key: k, Value: v}, want{report: true})
	return err
}

// QueueRecord is Queue for a record with headers, a time or neither key nor
// value. Unless done is nil it is called with the record's result, once if
// QueueRecord returned nil and never otherwise. It is called by the goroutine
// that writes the partition, in the order of offsets: it must not wait for this
// producer, and while it runs the partition stands still. Flush reports the
// record's failure too.
func (p *Producer[K, V]) QueueRecord(ctx context.Context, r Record[K, V], done func(Result)) error {
	_, err := p.put(ctx, &r, want{report: true, done: done})
	return err
}

// Flush waits until every record queued before the call is as durable as the
// topic asks or has failed. Its error is a *FlushError if queued records have
// failed since the last Flush. When ctx ends first the error matches ErrUnknown
// and the failures are left to the next Flush.
func (p *Producer[K, V]) Flush(ctx context.Context) error {
	if err := p.sender.flush(ctx); err != nil {
		return fmt.Errorf("%w: flush topic %q: %w", ErrUnknown, p.topic, err)
	}
	return p.sender.failures()
}

// Close writes what is queued, as Flush does, and gives the producer id back.
// Later sends return ErrClosed; repeated calls return the first one's result.
func (p *Producer[K, V]) Close() error {
	p.closing.Do(func() {
		p.sender.close()
		err := p.sender.failures()
		if e := p.node.ReleaseProducer(p.id); e != nil {
			err = errors.Join(err, fmt.Errorf("topic: release the producer id of %q: %w", p.topic, e))
		}
		p.closeErr = err
	})
	return p.closeErr
}

// put encodes r, chooses its partition and hands it to the sender. Everything
// that is the user's, codecs included, runs before a lock is taken.
func (p *Producer[K, V]) put(ctx context.Context, r *Record[K, V], w want) (ticket, error) {
	if err := ctx.Err(); err != nil {
		return ticket{}, fmt.Errorf("topic: send to %q: %w", p.topic, err) // and nothing is sent
	}
	s := p.scratch.Get().(*scratch)
	defer p.recycle(s)
	e, err := p.encode(s, r, len(p.sender.partitions()))
	if err != nil {
		return ticket{}, err
	}
	return p.sender.put(ctx, &e, w)
}

func (p *Producer[K, V]) recycle(s *scratch) {
	if cap(s.key)+cap(s.value) <= maxScratchBytes {
		p.scratch.Put(s)
	}
}
