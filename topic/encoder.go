package topic

import (
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// encoder makes entries of the records of a topic. It is never changed, so that
// goroutines share it.
type encoder[K, V any] struct {
	topic       string
	timed       bool // its readers look at times
	keys        codec.Codec[K]
	values      codec.Codec[V]
	absence     absence // which keys are none
	byKey       func(key []byte, n int) int
	partitionBy func(k K, n int) int // or nil
	eventTime   func(V) time.Time    // or nil
	now         func() time.Time
}

func newEncoder[K, V any](t Topic[K, V], keys codec.Codec[K], values codec.Codec[V], now func() time.Time) encoder[K, V] {
	return encoder[K, V]{
		topic: t.Name(), timed: timed(t.Spec()), keys: keys, values: values, absence: absenceOf[K](),
		byKey: t.ByKey(), partitionBy: t.Partitioner(), eventTime: t.EventTimeFunc(), now: now,
	}
}

// batchOverhead is what a batch of one record takes beside the record, at the most.
const batchOverhead = 128

// scratch is memory to encode one record in.
type scratch struct{ key, value []byte }

// maxScratchBytes is the capacity above which scratch is left to the collector.
const maxScratchBytes = 1 << 20

// encode encodes r, for one of n partitions, into s, which the result refers to.
func (c *encoder[K, V]) encode(s *scratch, r *Record[K, V], n int) (entry, error) {
	e := entry{headers: r.Headers, partition: anyPartition}
	if !r.NotBefore.IsZero() || !r.Expires.IsZero() {
		if !c.timed {
			return e, fmt.Errorf("topic %q: the record has NotBefore or Expires, and readers of the topic do not look at them: declare it Delayed", c.topic)
		}
		e.headers = withTimes(r.Headers, r.NotBefore, r.Expires)
	}
	var err error
	if !r.NoKey && !absent(c.absence, &r.Key) {
		if s.key, err = c.keys.Append(s.key[:0], r.Key); err != nil {
			return e, c.encodeError("key", reflect.TypeFor[K](), err)
		}
		if e.key = s.key; e.key == nil {
			e.key = []byte{} // nil would mean no key
		}
	}
	if !r.Deleted {
		if s.value, err = c.values.Append(s.value[:0], r.Value); err != nil {
			return e, c.encodeError("value", reflect.TypeFor[V](), err)
		}
		if e.value = s.value; e.value == nil {
			e.value = []byte{}
		}
	}
	switch by := c.partitionBy; {
	case e.key == nil && r.Deleted:
		return e, fmt.Errorf("%w: a tombstone of topic %q needs one", ErrNoKey, c.topic)
	case e.key == nil && by != nil:
		return e, fmt.Errorf("%w: the PartitionBy function of topic %q needs one", ErrNoKey, c.topic)
	case by != nil:
		if e.partition = by(r.Key, n); e.partition < 0 || e.partition >= n {
			return e, fmt.Errorf("topic %q: PartitionBy chose partition %d of %d", c.topic, e.partition, n)
		}
	case e.key != nil:
		e.partition = c.byKey(e.key, n)
	}
	switch {
	case c.eventTime != nil && !r.Deleted:
		e.time = c.eventTime(r.Value).UnixMilli()
	case !r.Time.IsZero():
		e.time = r.Time.UnixMilli()
	default:
		e.time = c.now().UnixMilli()
	}
	return e, nil
}

func (c *encoder[K, V]) encodeError(part string, t reflect.Type, err error) error {
	return &CodecError{Topic: c.topic, Partition: -1, Offset: -1, Part: part, Type: t.String(), Err: err}
}
