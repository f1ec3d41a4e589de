package topic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// Read iterates over the records of t from a position on. At the end of the log
// it waits for more, until ctx ends; the last step then yields ctx's error, as
// it yields any other. Use ReadToEnd to stop where the log ends.
//
// Partitions that are added to the topic meanwhile are read from their beginning.
//
// Records of one partition come in order, and partitions take turns batch by
// batch. The iterator resolves from, and opens the topic, whenever ranging over
// it begins. It holds no lock while the loop body runs, and pins the segment
// files it is in until the loop ends.
//
// In a topic declared Delayed a record that is not due holds back those behind it in
// its partition, but not other partitions; what has expired is passed over.
func Read[K, V any](ctx context.Context, n Node, t Topic[K, V], from Position) iter.Seq2[Record[K, V], error] {
	return read(ctx, n, t, from, scope{partition: allPartitions, follow: true})
}

// ReadToEnd is Read up to what t's isolation lets see when ranging begins, and in a
// topic declared Delayed up to the first record of each partition that is not due.
func ReadToEnd[K, V any](ctx context.Context, n Node, t Topic[K, V], from Position) iter.Seq2[Record[K, V], error] {
	return read(ctx, n, t, from, scope{partition: allPartitions})
}

// ReadPartition is Read of a single partition.
func ReadPartition[K, V any](ctx context.Context, n Node, t Topic[K, V], partition int, from Position) iter.Seq2[Record[K, V], error] {
	return read(ctx, n, t, from, scope{partition: partition, follow: true})
}

// ReadPartitionToEnd is ReadToEnd of a single partition.
func ReadPartitionToEnd[K, V any](ctx context.Context, n Node, t Topic[K, V], partition int, from Position) iter.Seq2[Record[K, V], error] {
	return read(ctx, n, t, from, scope{partition: partition})
}

// scope is what part of a topic to read.
type scope struct {
	partition int  // or allPartitions
	follow    bool // past the present end
}

const allPartitions = -1

func read[K, V any](ctx context.Context, n Node, t Topic[K, V], from Position, sc scope) iter.Seq2[Record[K, V], error] {
	return func(yield func(Record[K, V], error) bool) {
		d, partitions, err := prepare(n, t, sc)
		if err != nil {
			yield(Record[K, V]{}, err)
			return
		}
		cursors, err := newCursors(partitions, from, t.Isolation(), sc.follow, d.timing)
		if err != nil {
			yield(Record[K, V]{}, err)
			return
		}
		defer cursors.close()
		if sc.follow && sc.partition == allPartitions {
			cursors.grow(growth{n, t.Name()})
		}
		for {
			batch, partition, err := cursors.next(ctx)
			if err == io.EOF {
				return
			}
			if err == nil {
				err = d.records(ctx, batch, partition, cursors.end(), yield)
			}
			if err == errStopped {
				return
			}
			if err != nil {
				yield(Record[K, V]{}, err)
				return
			}
		}
	}
}

// errStopped says that the loop body does not want more.
var errStopped = errors.New("topic: stopped")

// prepare checks t and opens what sc covers.
func prepare[K, V any](n Node, t Topic[K, V], sc scope) (*decoder[K, V], []*log.Partition, error) {
	keys, values, err := t.Codecs(nil)
	if err := errors.Join(t.Err(), err); err != nil {
		return nil, nil, err
	}
	partitions, err := open(n, t.s)
	if err != nil {
		return nil, nil, fmt.Errorf("topic: open %q: %w", t.Name(), err)
	}
	if sc.partition != allPartitions {
		// A directory that was copied may lack some.
		i := slices.IndexFunc(partitions, func(p *log.Partition) bool { return int(p.Name().Partition) == sc.partition })
		if i < 0 {
			return nil, nil, fmt.Errorf("topic: read partition %d of %q, which has %d, the last is %d: %w",
				sc.partition, t.Name(), len(partitions), partitions[len(partitions)-1].Name().Partition, log.ErrUnknownTopic)
		}
		partitions = partitions[i : i+1]
	}
	return &decoder[K, V]{topic: t.Name(), keys: keys, values: values, timing: t.timing(n)}, partitions, nil
}

// decoder makes typed records of a topic.
type decoder[K, V any] struct {
	topic  string
	keys   codec.Codec[K]
	values codec.Codec[V]
	timing timing
}

// records yields the records of b below end.
func (d *decoder[K, V]) records(ctx context.Context, b *log.Batch, partition int, end log.Offset, yield func(Record[K, V], error) bool) error {
	it := b.Records()
	for it.Next() && it.Offset < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.timing.passes(&it, partition) {
			continue
		}
		r, err := d.record(&it, partition)
		if err != nil {
			return err
		}
		if !yield(r, nil) {
			return errStopped
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("topic: read %s-%d: %w", d.topic, partition, err)
	}
	return nil
}

func (d *decoder[K, V]) record(it *log.RecordIterator, partition int) (Record[K, V], error) {
	r := Record[K, V]{
		NoKey:     it.Key == nil,
		Deleted:   it.Value == nil,
		Time:      time.UnixMilli(it.Time).UTC(),
		Partition: partition,
		Offset:    int64(it.Offset),
	}
	var err error
	if !r.NoKey {
		if r.Key, err = d.keys.Decode(it.Key); err != nil {
			return Record[K, V]{}, d.decodeError(&r, "key", reflect.TypeFor[K](), err)
		}
	}
	if !r.Deleted {
		if r.Value, err = d.values.Decode(it.Value); err != nil {
			return Record[K, V]{}, d.decodeError(&r, "value", reflect.TypeFor[V](), err)
		}
	}
	if it.HasHeaders() {
		r.Headers = copyHeaders(it.Headers())
		r.NotBefore, r.Expires = d.timing.explicit(r.Headers)
	}
	return r, nil
}

// typed is record for one that was read as it is stored.
func (d *decoder[K, V]) typed(raw Record[[]byte, []byte]) (Record[K, V], error) {
	r := Record[K, V]{
		NoKey: raw.NoKey, Deleted: raw.Deleted, Time: raw.Time, NotBefore: raw.NotBefore, Expires: raw.Expires, Headers: raw.Headers, Partition: raw.Partition, Offset: raw.Offset,
	}
	var err error
	if !r.NoKey {
		if r.Key, err = d.keys.Decode(raw.Key); err != nil {
			return Record[K, V]{}, d.decodeError(&r, "key", reflect.TypeFor[K](), err)
		}
	}
	if !r.Deleted {
		if r.Value, err = d.values.Decode(raw.Value); err != nil {
			return Record[K, V]{}, d.decodeError(&r, "value", reflect.TypeFor[V](), err)
		}
	}
	return r, nil
}

// copyHeaders copies what points into the log's mapping.
func copyHeaders(headers []Header) []Header {
	for i := range headers {
		headers[i].Value = slices.Clone(headers[i].Value)
	}
	return headers
}

func (d *decoder[K, V]) decodeError(r *Record[K, V], part string, t reflect.Type, err error) error {
	return &CodecError{Topic: d.topic, Partition: r.Partition, Offset: r.Offset, Part: part, Type: t.String(), Err: err}
}
