package topic

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// MaxPartitions bounds the partitions of one topic. Each costs open files and a
// preallocated segment, so more is more likely a mistake than a wish.
const MaxPartitions = 4096

// Topic is a name, two codecs and the settings the topic is created with. It is
// a plain value that touches no log: declare it as a package variable and share
// it. Its methods return changed copies and never fail; a mistake is kept and
// returned by Err and by whatever uses the topic first.
//
// The zero Topic is not usable; make one with New.
type Topic[K, V any] struct {
	_ [0]func(K, V) // topics of other types do not convert to it
	s *settings     // nil in the zero Topic
}

// New declares a topic of one partition with the default codecs of K and V. A
// name has 1 to 249 letters, digits, '.', '_' and '-'; names that begin with
// "__" are reserved.
func New[K, V any](name string) Topic[K, V] {
	return Topic[K, V]{s: &settings{name: name, spec: log.TopicSpec{Partitions: 1}, declared: new(declaration)}}
}

// KeyCodec makes c the codec of the keys.
func (t Topic[K, V]) KeyCodec(c codec.Codec[K]) Topic[K, V] {
	return Topic[K, V]{s: t.s.keyCodec(c, reflect.TypeFor[K]())}
}

// ValueCodec makes c the codec of the values.
func (t Topic[K, V]) ValueCodec(c codec.Codec[V]) Topic[K, V] {
	return Topic[K, V]{s: t.s.valueCodec(c, reflect.TypeFor[V]())}
}

// EventTime says which time in a value is the record's. Without it that is the
// time given with the record, or else the time of sending. Deleted records have
// no value, so f is not asked for them.
func (t Topic[K, V]) EventTime(f func(V) time.Time) Topic[K, V] {
	return Topic[K, V]{s: t.s.withEventTime(f, f == nil)}
}

// Partitions sets the number of partitions, between 1 and MaxPartitions.
func (t Topic[K, V]) Partitions(n int) Topic[K, V] {
	return Topic[K, V]{s: t.s.partitions(n)}
}

// Sync sets when records are made durable, and so what Send waits for.
func (t Topic[K, V]) Sync(s log.Sync) Topic[K, V] {
	return Topic[K, V]{s: t.s.sync(s)}
}

// SegmentBytes sets the size at which a segment file is sealed. Without it the
// log's own setting holds.
func (t Topic[K, V]) SegmentBytes(n int64) Topic[K, V] {
	return Topic[K, V]{s: t.s.segmentBytes(n)}
}

// Compact keeps the newest record of each key only; older ones are removed in the
// background. Offsets stay what they are. Every record needs a key then, or is
// refused with log.ErrNoKey, and one without a value deletes its key.
func (t Topic[K, V]) Compact() Topic[K, V] {
	return Topic[K, V]{s: t.s.compact()}
}

// TombstoneRetention sets how long a record without a value stays in a topic with
// Compact, from when compaction first meets it: a reader that is further behind may
// miss the deletion. Without it that is 24 hours.
func (t Topic[K, V]) TombstoneRetention(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.tombstoneRetention(d)}
}

// MinCompactionLag sets how long a record of a topic with Compact stays at least,
// whatever came after it. Without it that is no time.
func (t Topic[K, V]) MinCompactionLag(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.minCompactionLag(d)}
}

// MaxCompactionLag sets how long a record of a topic with Compact waits at most to be
// compacted, however little there is to remove. Without it DirtyRatio alone decides.
func (t Topic[K, V]) MaxCompactionLag(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.maxCompactionLag(d)}
}

// DirtyRatio sets how much of a topic with Compact has to be new for it to be
// compacted, per mille of the bytes of its sealed segments. Without it that is 500.
func (t Topic[K, V]) DirtyRatio(perMille int) Topic[K, V] {
	return Topic[K, V]{s: t.s.dirtyRatio(perMille)}
}

// Remote has the sealed segments of the topic copied to the object store of the node,
// log.Options.Remote. Reading takes them from there once they are gone here. It
// excludes Compact.
func (t Topic[K, V]) Remote() Topic[K, V] {
	return Topic[K, V]{s: t.s.remote()}
}

// RetainLocally sets how long the copied segments of a topic with Remote stay in the
// node's directory, too; age is what Retain takes it for. Without it and
// RetainLocallyBytes they stay as long as in the object store.
func (t Topic[K, V]) RetainLocally(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.retainLocally(d)}
}

// RetainLocallyBytes sets how much of each partition of a topic with Remote is kept in
// the node's directory, at least; copied segments beyond that go from there.
func (t Topic[K, V]) RetainLocallyBytes(n int64) Topic[K, V] {
	return Topic[K, V]{s: t.s.retainLocallyBytes(n)}
}

// Compress sets how batches of the topic are compressed. Without it they are not.
// Reading takes what it finds, so a topic may hold batches compressed in any way.
func (t Topic[K, V]) Compress(c log.Compression) Topic[K, V] {
	return Topic[K, V]{s: t.s.compress(c)}
}

// CompressionLevel trades time for size, in the numbers of the codec that Compress
// sets: 1 to 9 for log.Gzip and log.LZ4, 1 to 22 for log.Zstd. Without it the
// codec's default holds.
func (t Topic[K, V]) CompressionLevel(n int) Topic[K, V] {
	return Topic[K, V]{s: t.s.compressionLevel(n)}
}

// MaxRecordBytes sets the most bytes that key, value and headers of one record may
// have together, as encoded. A larger one is refused with a *TooLargeError. Without
// it a record may have what a batch holds.
func (t Topic[K, V]) MaxRecordBytes(n int64) Topic[K, V] {
	return Topic[K, V]{s: t.s.maxRecordBytes(n)}
}

// AppendTime gives every record the time at which the log takes it, in place of one
// that comes with the record or that EventTime finds.
func (t Topic[K, V]) AppendTime() Topic[K, V] {
	return Topic[K, V]{s: t.s.appendTime()}
}

// Retain sets how long records are kept, by their own time. Older ones go by whole
// segments, so some stay longer; a time in the future counts as that of the sending.
// Without it nothing is dropped for its age.
func (t Topic[K, V]) Retain(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.retain(d)}
}

// RetainBytes sets how much of each partition is kept, at least: its oldest segment
// goes once the others have n bytes together. Without it nothing is dropped for its
// size.
func (t Topic[K, V]) RetainBytes(n int64) Topic[K, V] {
	return Topic[K, V]{s: t.s.retainBytes(n)}
}

// Delayed has readers of the topic look at the times of its records, see
// Record.NotBefore and Record.Expires. A record that is not due holds back those
// behind it in its partition from who reads in order; a Queue passes it by.
func (t Topic[K, V]) Delayed() Topic[K, V] {
	return Topic[K, V]{s: t.s.delayed()}
}

// TimeToLive sets how long after their Time records expire that do not have an
// Expires of their own, at least 1 ms. Readers pass over what has expired. It also has
// them look at the times of records as Delayed does.
func (t Topic[K, V]) TimeToLive(d time.Duration) Topic[K, V] {
	return Topic[K, V]{s: t.s.timeToLive(d)}
}

// OnExpired has f called for every record that a reader passes over since it has
// expired, by the goroutine that reads. It is about reading alone, as Uncommitted is; a
// Queue counts them in its status.
func (t Topic[K, V]) OnExpired(f func(partition int, offset int64)) Topic[K, V] {
	return Topic[K, V]{s: t.s.withOnExpired(f)}
}

// Uncommitted lets reads of the topic see records of open and of aborted
// transactions. Without it they never do.
func (t Topic[K, V]) Uncommitted() Topic[K, V] {
	return Topic[K, V]{s: t.s.withUncommitted()}
}

// PartitionBy chooses the partition of a record, in [0, n), by its key. Without
// it Partition does, by the encoded key. f is called by every sending goroutine.
func (t Topic[K, V]) PartitionBy(f func(k K, n int) int) Topic[K, V] {
	return Topic[K, V]{s: t.s.withPartitionBy(f, f == nil)}
}

// Name returns the topic's name.
func (t Topic[K, V]) Name() string { return t.s.get().name }

// Spec returns what the topic is created with.
func (t Topic[K, V]) Spec() log.TopicSpec { return t.s.get().spec }

// Err returns every mistake in the declaration, joined, or nil. Whether there
// is a codec for each type is Codecs' to tell.
func (t Topic[K, V]) Err() error { return t.s.get().err() }

// Codecs returns the codecs of keys and values: those set, or else the defaults
// r has for the types. A nil r is the empty registry.
func (t Topic[K, V]) Codecs(r *codec.Registry) (codec.Codec[K], codec.Codec[V], error) {
	name := t.Name()
	key, _ := t.s.get().key.(codec.Codec[K])
	value, _ := t.s.get().value.(codec.Codec[V])
	var keyErr, valueErr error
	if key == nil {
		if key, keyErr = r.Of[K](); keyErr != nil {
			keyErr = fmt.Errorf("topic %q: no codec for keys of type %s; set one with KeyCodec: %w", name, reflect.TypeFor[K](), keyErr)
		}
	}
	if value == nil {
		if value, valueErr = r.Of[V](); valueErr != nil {
			valueErr = fmt.Errorf("topic %q: no codec for values of type %s; set one with ValueCodec: %w", name, reflect.TypeFor[V](), valueErr)
		}
	}
	if err := errors.Join(keyErr, valueErr); err != nil {
		return nil, nil, err
	}
	return key, value, nil
}

// EventTimeFunc returns the function set by EventTime, or nil.
func (t Topic[K, V]) EventTimeFunc() func(V) time.Time {
	f, _ := t.s.get().eventTime.(func(V) time.Time)
	return f
}

// Partitioner returns the function set by PartitionBy, or nil for the default,
// Partition.
func (t Topic[K, V]) Partitioner() func(k K, n int) int {
	f, _ := t.s.get().partitionBy.(func(k K, n int) int)
	return f
}

// Partitioned is a key type of which only a part decides the partition: records that
// share it stay together and in order. window.Key is one, so that the windows of a
// key are in the partition of the key.
type Partitioned interface {
	// PartitionKey returns that part of an encoded key.
	PartitionKey(encoded []byte) []byte
}

// ByKey returns the partitioner of encoded keys: Partition, of the whole key or, where
// the key type is Partitioned and has its default codec, of its part.
func (t Topic[K, V]) ByKey() func(key []byte, n int) int {
	var k K
	if p, ok := any(k).(Partitioned); ok && t.s.get().key == nil {
		return func(key []byte, n int) int { return Partition(p.PartitionKey(key), n) }
	}
	return Partition
}

// IsUncommitted tells whether Uncommitted was set.
func (t Topic[K, V]) IsUncommitted() bool { return t.s.get().uncommitted }

// Isolation returns which records reads of the topic may see.
func (t Topic[K, V]) Isolation() log.Isolation {
	if t.IsUncommitted() {
		return log.ReadUncommitted
	}
	return log.ReadCommitted
}
