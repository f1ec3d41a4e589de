package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// Sink is a place outside of the log that a stream is handed to.
//
// Write is called after the records are committed, in their order within a sink
// partition, with up to Delivery.Batch of them. When it returns an error, and
// after a crash, it is called again, maybe with the records cut into other batches:
// what it may have seen before comes with the same IDs, and a sink that ignores
// an ID it has, or whose writes can be repeated, has each record once. It is called for
// several sink partitions at the same time, for each by one goroutine at a time; a
// sink that wants one value for each is an Opener. The batch is the caller's
// again when Write returns. ctx ends with the job.
type Sink[K, V any] interface {
	Write(ctx context.Context, batch []Output[K, V]) error
}

// TxSink is a Sink that commits in two phases: what it is given counts once it is committed,
// together with the position of the job, and so once.
//
// Write comes first. Prepare makes all that was written since the handle before, if there
// is anything, ready to be committed whatever happens, and returns a handle that
// says what that is; an empty one says that there is nothing to commit. The handle
// becomes part of a checkpoint. When that is complete Commit is called with it,
// again and again until it returns nil, also by a later run, and maybe once more
// after it has. Only then does another Prepare follow, but Write may come before.
//
// Abort drops everything that was written or prepared and not committed, by whatever
// run. It is called when a run begins, after the Commit of the handle in its
// checkpoint, and when a Write or a Prepare has failed; what it dropped is written again.
//
// A TxSink has one sink partition, unless it is an Opener.
type TxSink[K, V any] interface {
	Sink[K, V]
	Prepare(ctx context.Context) (handle []byte, err error)
	Commit(ctx context.Context, handle []byte) error
	Abort(ctx context.Context) error
}

// Opener is a Sink that has a value of its own for each sink partition. Open is called
// when a run begins; where the result is an io.Closer, Close is called when it has ended.
type Opener[K, V any] interface {
	Open(p SinkPartition) (Sink[K, V], error)
}

// PerPartition is an Opener made of a function. It is a Sink to be given to Stream.Sink; it
// is not written to itself.
type PerPartition[K, V any] func(p SinkPartition) (Sink[K, V], error)

// Open calls f.
func (f PerPartition[K, V]) Open(p SinkPartition) (Sink[K, V], error) { return f(p) }

// Write is an error: what Open returns is written to.
func (f PerPartition[K, V]) Write(context.Context, []Output[K, V]) error {
	return errors.New("stream: a PerPartition is opened for each sink partition, not written to")
}

// SinkPartition says which part of a job's output a sink gets.
type SinkPartition struct {
	Job       string
	Name      string // of the step
	Partition int
}

// Output is a record for a sink.
type Output[K, V any] struct {
	// ID names the record in every delivery of it, and no other record:
	// job, step, sink partition and offset. It is unique among all jobs of a node.
	ID    string
	Key   K
	Value V

	NoKey   bool // there is no key
	Deleted bool // there is no value: what the key had is deleted

	Time    time.Time // event time
	Headers []topic.Header
}

// Delivery says how a stream is handed to a sink. The zero settings are the defaults.
type Delivery struct{ step *step }

// deliver is what a step needs that hands its input to a sink.
type deliver struct {
	batch   int
	backlog int
	tries   int
	parts   int // of the internal topic, when it is made; 0 is one for each task
	open    func(o *opening, p *topic.LogPartition, start topic.LogPosition)
}

const (
	// DefaultDeliveryBatch is how many records a sink is given at a time.
	DefaultDeliveryBatch = 500
	// DefaultBacklog is how many records a sink may be behind before sources wait.
	DefaultBacklog = 1 << 20
)

// As names the step, and with it the topic that holds what the sink does not have
// yet. The name must stay as long as that is to be delivered, and it is part of the IDs.
func (d Delivery) As(name string) Delivery {
	d.step.name, d.step.named = name, true
	return d
}

// Batch sets how many records the sink is given at a time; DefaultDeliveryBatch by default.
func (d Delivery) Batch(records int) Delivery {
	if records <= 0 {
		d.step.app.fault(d.step.label(), fmt.Sprintf("a batch of %d records: use 1 or more", records))
	}
	d.step.deliver.batch = records
	return d
}

// Backlog sets how many records of a sink partition may wait for the sink before the
// job's sources wait for it; DefaultBacklog by default. What is in the job by then comes on top.
func (d Delivery) Backlog(records int) Delivery {
	if records <= 0 {
		d.step.app.fault(d.step.label(), fmt.Sprintf("a backlog of %d records: use 1 or more", records))
	}
	d.step.deliver.backlog = records
	return d
}

// Tries makes the job fail when the sink has returned an error so many times in a row. By
// default, and with 0, it is tried for ever, at intervals that grow to 30 seconds:
// what is to be delivered waits in the log, and Job.Status tells.
func (d Delivery) Tries(n int) Delivery {
	if n < 0 {
		d.step.app.fault(d.step.label(), fmt.Sprintf("%d tries: use 0 for no bound, or more", n))
	}
	d.step.deliver.tries = n
	return d
}

// Each calls f with each record once it is committed, in order of the key or, without
// keys, of the task it comes from. Partition and Offset of the record are those of the
// sink partition: with the name of the step they name the record in every delivery of
// it. When f returns an error it is called again later, see Delivery.Tries; after a
// crash it may see records again that it had seen.
//
// Without As the step is named after what it reads.
func (s Stream[K, V]) Each[_ lazily[V]](f func(context.Context, topic.Record[K, V]) error) Delivery {
	d := declareDelivery(s, "each")
	requireFunc(d.step, f == nil)
	d.step.deliver.open = func(o *opening, p *topic.LogPartition, start topic.LogPosition) {
		openDelivery(o, d.step, p, start, &eachOf[K, V]{codecs: codecsOf[K, V](o.run.app), f: f, partition: int(p.Name().Partition)})
	}
	return d
}

// Sink hands the records to a sink outside of the log. They are committed to an internal
// topic first and delivered from there, so that the same record has the same ID
// in every delivery, however a run that follows a crash cuts and interleaves
// its work. Records of a key are delivered in their order.
//
// A sink that is slow or away does not hold up the job's other outputs: what it does not
// have waits in the log, and is deleted there once a checkpoint says that it was
// delivered. When it is Delivery.Backlog behind, the job's sources wait for it.
//
// Without As the step is named after what it reads.
func (s Stream[K, V]) Sink[_ lazily[V]](sink Sink[K, V]) Delivery {
	d := declareDelivery(s, "sink")
	if sink == nil {
		d.step.fault("sink needs a Sink, not nil")
	}
	opener, _ := sink.(Opener[K, V])
	if _, ok := sink.(TxSink[K, V]); ok && opener == nil {
		d.step.deliver.parts = 1
	}
	d.step.deliver.open = func(o *opening, p *topic.LogPartition, start topic.LogPosition) {
		sink := sink
		part := SinkPartition{Job: o.run.app.name, Name: d.step.name, Partition: int(p.Name().Partition)}
		if opener != nil {
			var err error
			if sink, err = opener.Open(part); err != nil {
				o.fail(fmt.Errorf("open the sink of step %q, partition %d: %w", d.step.name, part.Partition, err))
				return
			}
		}
		batch := batchOf[K, V]{codecs: codecsOf[K, V](o.run.app), sink: sink, id: part.Job + "/" + part.Name + "/" + strconv.Itoa(part.Partition) + "/", closes: opener != nil}
		if tx, ok := sink.(TxSink[K, V]); ok {
			openDelivery(o, d.step, p, start, &txBatchOf[K, V]{batch, tx})
			return
		}
		openDelivery(o, d.step, p, start, &batch)
	}
	return d
}

// declareDelivery declares a step that writes what s gives to an internal topic, from where a
// stage of its own delivers it.
func declareDelivery[K, V any](s Stream[K, V], kind string) Delivery {
	step := s.n.step.app.declare(kind, s.n.step)
	step.needsKey, step.needsHeaders = true, true
	step.deliver = &deliver{batch: DefaultDeliveryBatch, backlog: DefaultBacklog}
	if _, _, err := internalCodecs[K, V](step.app); err != nil {
		step.fault(err.Error())
	}
	connect(s.n, step, func(o *opening) port[K, V] {
		c := codecsOf[K, V](o.run.app)
		out := outlet[K, V]{topic: o.run.deliveryTopic(step), keys: c.keys, values: c.values, byKey: topic.Partition, internal: true,
			noKey: func(t *engine.Task, partitions int) int { return t.ID.Shard % partitions }}
		return out.open(o, step)
	})
	return Delivery{step}
}

// deliveryTopic is the topic that holds what a step has to deliver.
func (r *run) deliveryTopic(s *step) string { return internalTopic(r.app.name, s.name, "sink") }

// isInternal tells whether a topic belongs to a step of a job.
func isInternal(name string) bool { return strings.HasPrefix(name, "__") }

// internalCodecs are those of records that wait to be delivered. They may wait while the
// program changes, so the codecs are those of topics, which say what the fields are.
func internalCodecs[K, V any](app *Topology) (codec.Codec[K], codec.Codec[V], error) {
	return topic.New[K, V]("sink").Codecs(&app.codecs)
}

// codecPair decodes the records of an internal topic.
type codecPair[K, V any] struct {
	keys   codec.Codec[K]
	values codec.Codec[V]
}

// codecsOf is for after Validate, which reports what internalCodecs cannot find.
func codecsOf[K, V any](app *Topology) codecPair[K, V] {
	keys, values, _ := internalCodecs[K, V](app)
	return codecPair[K, V]{keys, values}
}

func (c codecPair[K, V]) decode(r *topic.RecordIterator) (k K, v V, err error) {
	if r.Key != nil {
		if k, err = c.keys.Decode(r.Key); err != nil {
			return k, v, fmt.Errorf("decode key: %w", err)
		}
	}
	if r.Value != nil {
		if v, err = c.values.Decode(r.Value); err != nil {
			return k, v, fmt.Errorf("decode value: %w", err)
		}
	}
	return k, v, nil
}

// headersOf decodes the headers of a record; nil where there are none.
func headersOf(r *topic.RecordIterator) []topic.Header {
	if !r.HasHeaders() {
		return nil
	}
	return r.Headers()
}

func openDelivery(o *opening, s *step, p *topic.LogPartition, start topic.LogPosition, sink engine.External) {
	engine.OpenDelivery(o.task, engine.DeliveryOptions{
		Partition: p, Start: start, Sink: sink, Batch: s.deliver.batch, Backlog: s.deliver.backlog, Tries: s.deliver.tries,
		Step: s.id, Name: "delivery",
	})
}

// batchOf hands batches to a Sink.
type batchOf[K, V any] struct {
	codecs codecPair[K, V]
	sink   Sink[K, V]
	id     string // what IDs begin with
	closes bool   // the sink was opened for this run
	batch  []Output[K, V]
}

func (b *batchOf[K, V]) Take(at topic.LogPosition, r *topic.RecordIterator) error {
	k, v, err := b.codecs.decode(r)
	if err != nil {
		return err
	}
	id := b.id + strconv.FormatInt(int64(at.Offset), 10)
	if at.Epoch > 0 { // a power cut may take records, and others get their offsets
		id += "@" + strconv.FormatInt(int64(at.Epoch), 10)
	}
	b.batch = append(b.batch, Output[K, V]{ID: id, Key: k, Value: v, NoKey: r.Key == nil, Deleted: r.Value == nil,
		Time: time.UnixMilli(r.Time).UTC(), Headers: headersOf(r)})
	return nil
}

func (b *batchOf[K, V]) Write(ctx context.Context) error { return b.sink.Write(ctx, b.batch) }

func (b *batchOf[K, V]) Reset() {
	clear(b.batch)
	b.batch = b.batch[:0]
}

func (b *batchOf[K, V]) Close() error {
	if c, ok := b.sink.(interface{ Close() error }); ok && b.closes {
		return c.Close()
	}
	return nil
}

// txBatchOf hands batches to a TxSink.
type txBatchOf[K, V any] struct {
	batchOf[K, V]
	tx TxSink[K, V]
}

func (b *txBatchOf[K, V]) Prepare(ctx context.Context) ([]byte, error) { return b.tx.Prepare(ctx) }

func (b *txBatchOf[K, V]) Commit(ctx context.Context, handle []byte) error {
	return b.tx.Commit(ctx, handle)
}

func (b *txBatchOf[K, V]) Abort(ctx context.Context) error { return b.tx.Abort(ctx) }

// eachOf hands records to a function one by one.
type eachOf[K, V any] struct {
	codecs    codecPair[K, V]
	f         func(context.Context, topic.Record[K, V]) error
	partition int
	batch     []topic.Record[K, V]
	done      int // of the batch: f has returned nil
}

func (e *eachOf[K, V]) Take(at topic.LogPosition, r *topic.RecordIterator) error {
	k, v, err := e.codecs.decode(r)
	if err != nil {
		return err
	}
	e.batch = append(e.batch, topic.Record[K, V]{Key: k, Value: v, NoKey: r.Key == nil, Deleted: r.Value == nil,
		Time: time.UnixMilli(r.Time).UTC(), Headers: headersOf(r), Partition: e.partition, Offset: int64(at.Offset)})
	return nil
}

// Write goes on where the call before met an error.
func (e *eachOf[K, V]) Write(ctx context.Context) error {
	for ; e.done < len(e.batch); e.done++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.f(ctx, e.batch[e.done]); err != nil {
			return fmt.Errorf("record at offset %d: %w", e.batch[e.done].Offset, err)
		}
	}
	return nil
}

func (e *eachOf[K, V]) Reset() {
	clear(e.batch)
	e.batch, e.done = e.batch[:0], 0
}

// deliveryPartition is what the task of a shard delivers.
func (r *run) deliveryPartition(s *step, shard int) (*topic.LogPartition, error) {
	return r.env.Plane.Log().Partition(topic.TopicPartition{Topic: r.deliveryTopic(s), Partition: topic.PartitionID(shard)})
}

func (r *run) openDeliveryTask(o *opening, s *step) error {
	p, err := r.deliveryPartition(s, o.task.ID.Shard)
	if err != nil {
		return err
	}
	start, err := o.task.StartOf(p, 0)
	if err != nil {
		return err
	}
	s.deliver.open(o, p, start)
	return o.err
}
