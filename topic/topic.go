package topic

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
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
	name        string
	key         codec.Codec[K] // nil means the default of K
	value       codec.Codec[V] // nil means the default of V
	eventTime   func(V) time.Time
	partitionBy func(k K, n int) int
	spec        log.TopicSpec
	uncommitted bool
	onExpired   func(partition int, offset int64)
	faults      error // mistakes in the calls so far, joined

	// declared is the same in two topics if records of one are encoded and placed as
	// those of the other.
	declared *declaration
}

// declaration has an address, and nothing else that counts.
type declaration struct{ _ byte }

// New declares a topic of one partition with the default codecs of K and V. A
// name has 1 to 249 letters, digits, '.', '_' and '-'; names that begin with
// "__" are reserved.
func New[K, V any](name string) Topic[K, V] {
	return Topic[K, V]{name: name, spec: log.TopicSpec{Partitions: 1}, declared: new(declaration)}
}

// KeyCodec makes c the codec of the keys.
func (t Topic[K, V]) KeyCodec(c codec.Codec[K]) Topic[K, V] {
	if c == nil {
		return t.fault("KeyCodec(nil): give a codec, or leave the call out for the default of %s", reflect.TypeFor[K]())
	}
	t.key, t.declared = c, new(declaration)
	return t
}

// ValueCodec makes c the codec of the values.
func (t Topic[K, V]) ValueCodec(c codec.Codec[V]) Topic[K, V] {
	if c == nil {
		return t.fault("ValueCodec(nil): give a codec, or leave the call out for the default of %s", reflect.TypeFor[V]())
	}
	t.value, t.declared = c, new(declaration)
	return t
}

// EventTime says which time in a value is the record's. Without it that is the
// time given with the record, or else the time of sending. Deleted records have
// no value, so f is not asked for them.
func (t Topic[K, V]) EventTime(f func(V) time.Time) Topic[K, V] {
	if f == nil {
		return t.fault("EventTime(nil): give a function, or leave the call out for the time of sending")
	}
	t.eventTime, t.declared = f, new(declaration)
	return t
}

// Partitions sets the number of partitions, between 1 and MaxPartitions.
func (t Topic[K, V]) Partitions(n int) Topic[K, V] {
	if n < 1 || n > MaxPartitions {
		return t.fault("Partitions(%d): give a number between 1 and %d", n, MaxPartitions)
	}
	t.spec.Partitions = n
	return t
}

// Sync sets when records are made durable, and so what Send waits for.
func (t Topic[K, V]) Sync(s log.Sync) Topic[K, V] {
	if s < 0 && s != log.SyncAlways {
		return t.fault("Sync(%d): give log.SyncAlways, log.SyncByOS or log.SyncEvery of a positive duration", s)
	}
	t.spec.Sync = s
	return t
}

// SegmentBytes sets the size at which a segment file is sealed. Without it the
// log's own setting holds.
func (t Topic[K, V]) SegmentBytes(n int64) Topic[K, V] {
	if n < 1 || n > math.MaxInt32 {
		return t.fault("SegmentBytes(%d): give a size between 1 and %d, or leave the call out for the log's own", n, math.MaxInt32)
	}
	t.spec.SegmentBytes = n
	return t
}

// Compact keeps the newest record of each key only; older ones are removed in the
// background. Offsets stay what they are. Every record needs a key then, or is
// refused with log.ErrNoKey, and one without a value deletes its key.
func (t Topic[K, V]) Compact() Topic[K, V] {
	t.spec.Compact = true
	return t
}

// TombstoneRetention sets how long a record without a value stays in a topic with
// Compact, from when compaction first meets it: a reader that is further behind may
// miss the deletion. Without it that is 24 hours.
func (t Topic[K, V]) TombstoneRetention(d time.Duration) Topic[K, V] {
	if d <= 0 {
		return t.fault("TombstoneRetention(%v): give a positive duration, or leave the call out for 24 hours", d)
	}
	t.spec.TombstoneRetention = d
	return t
}

// MinCompactionLag sets how long a record of a topic with Compact stays at least,
// whatever came after it. Without it that is no time.
func (t Topic[K, V]) MinCompactionLag(d time.Duration) Topic[K, V] {
	if d < 0 {
		return t.fault("MinCompactionLag(%v): give a duration, or leave the call out", d)
	}
	t.spec.MinCompactionLag = d
	return t
}

// MaxCompactionLag sets how long a record of a topic with Compact waits at most to be
// compacted, however little there is to remove. Without it DirtyRatio alone decides.
func (t Topic[K, V]) MaxCompactionLag(d time.Duration) Topic[K, V] {
	if d <= 0 {
		return t.fault("MaxCompactionLag(%v): give a positive duration, or leave the call out for no bound", d)
	}
	t.spec.MaxCompactionLag = d
	return t
}

// DirtyRatio sets how much of a topic with Compact has to be new for it to be
// compacted, per mille of the bytes of its sealed segments. Without it that is 500.
func (t Topic[K, V]) DirtyRatio(perMille int) Topic[K, V] {
	if perMille < 1 || perMille > 1000 {
		return t.fault("DirtyRatio(%d): give 1 to 1000, or leave the call out for 500", perMille)
	}
	t.spec.DirtyRatio = perMille
	return t
}

// Remote has the sealed segments of the topic copied to the object store of the node,
// log.Options.Remote. Reading takes them from there once they are gone here. It
// excludes Compact.
func (t Topic[K, V]) Remote() Topic[K, V] {
	t.spec.Remote = true
	return t
}

// RetainLocally sets how long the copied segments of a topic with Remote stay in the
// node's directory, too; age is what Retain takes it for. Without it and
// RetainLocallyBytes they stay as long as in the object store.
func (t Topic[K, V]) RetainLocally(d time.Duration) Topic[K, V] {
	if d <= 0 {
		return t.fault("RetainLocally(%v): give a positive duration, or leave the call out", d)
	}
	t.spec.LocalRetentionAge = d
	return t
}

// RetainLocallyBytes sets how much of each partition of a topic with Remote is kept in
// the node's directory, at least; copied segments beyond that go from there.
func (t Topic[K, V]) RetainLocallyBytes(n int64) Topic[K, V] {
	if n <= 0 {
		return t.fault("RetainLocallyBytes(%d): give a positive size, or leave the call out", n)
	}
	t.spec.LocalRetentionBytes = n
	return t
}

// Compress sets how batches of the topic are compressed. Without it they are not.
// Reading takes what it finds, so a topic may hold batches compressed in any way.
func (t Topic[K, V]) Compress(c log.Compression) Topic[K, V] {
	if err := c.CheckLevel(0); err != nil {
		return t.fault("Compress(%d): %w", c, err)
	}
	t.spec.Compression = max(c, 0)
	return t
}

// CompressionLevel trades time for size, in the numbers of the codec that Compress
// sets: 1 to 9 for log.Gzip and log.LZ4, 1 to 22 for log.Zstd. Without it the
// codec's default holds.
func (t Topic[K, V]) CompressionLevel(n int) Topic[K, V] {
	if n < 1 {
		return t.fault("CompressionLevel(%d): give at least 1, or leave the call out for the codec's default", n)
	}
	t.spec.CompressionLevel = n
	return t
}

// MaxRecordBytes sets the most bytes that key, value and headers of one record may
// have together, as encoded. A larger one is refused with a *TooLargeError. Without
// it a record may have what a batch holds.
func (t Topic[K, V]) MaxRecordBytes(n int64) Topic[K, V] {
	if n < 1 || n > maxRecordBytes {
		return t.fault("MaxRecordBytes(%d): give a size between 1 and %d, or leave the call out", n, maxRecordBytes)
	}
	t.spec.MaxRecordBytes = n
	return t
}

// AppendTime gives every record the time at which the log takes it, in place of one
// that comes with the record or that EventTime finds.
func (t Topic[K, V]) AppendTime() Topic[K, V] {
	t.spec.AppendTime = true
	return t
}

// Retain sets how long records are kept, by their own time. Older ones go by whole
// segments, so some stay longer; a time in the future counts as that of the sending.
// Without it nothing is dropped for its age.
func (t Topic[K, V]) Retain(d time.Duration) Topic[K, V] {
	if d <= 0 {
		return t.fault("Retain(%v): give a positive duration, or leave the call out to keep records for ever", d)
	}
	t.spec.RetentionAge = d
	return t
}

// RetainBytes sets how much of each partition is kept, at least: its oldest segment
// goes once the others have n bytes together. Without it nothing is dropped for its
// size.
func (t Topic[K, V]) RetainBytes(n int64) Topic[K, V] {
	if n < 1 {
		return t.fault("RetainBytes(%d): give a positive size, or leave the call out to keep everything", n)
	}
	t.spec.RetentionBytes = n
	return t
}

// Delayed has readers of the topic look at the times of its records, see
// Record.NotBefore and Record.Expires. A record that is not due holds back those
// behind it in its partition from who reads in order; a Queue passes it by.
func (t Topic[K, V]) Delayed() Topic[K, V] {
	t.spec.Delayed = true
	return t
}

// TimeToLive sets how long after their Time records expire that do not have an
// Expires of their own, at least 1 ms. Readers pass over what has expired. It also has
// them look at the times of records as Delayed does.
func (t Topic[K, V]) TimeToLive(d time.Duration) Topic[K, V] {
	if d < time.Millisecond {
		return t.fault("TimeToLive(%v): give at least 1 ms, or leave the call out", d)
	}
	t.spec.TimeToLive = d
	return t
}

// OnExpired has f called for every record that a reader passes over since it has
// expired, by the goroutine that reads. It is about reading alone, as Uncommitted is; a
// Queue counts them in its status.
func (t Topic[K, V]) OnExpired(f func(partition int, offset int64)) Topic[K, V] {
	t.onExpired = f
	return t
}

// Uncommitted lets reads of the topic see records of open and of aborted
// transactions. Without it they never do.
func (t Topic[K, V]) Uncommitted() Topic[K, V] {
	t.uncommitted = true
	return t
}

// PartitionBy chooses the partition of a record, in [0, n), by its key. Without
// it Partition does, by the encoded key. f is called by every sending goroutine.
func (t Topic[K, V]) PartitionBy(f func(k K, n int) int) Topic[K, V] {
	if f == nil {
		return t.fault("PartitionBy(nil): give a function, or leave the call out to partition by the hash of the key")
	}
	t.partitionBy, t.declared = f, new(declaration)
	return t
}

// Name returns the topic's name.
func (t Topic[K, V]) Name() string { return t.name }

// Spec returns what the topic is created with.
func (t Topic[K, V]) Spec() log.TopicSpec { return t.spec }

// Err returns every mistake in the declaration, joined, or nil. Whether there
// is a codec for each type is Codecs' to tell.
func (t Topic[K, V]) Err() error { return errors.Join(checkName(t.name), t.faults, t.together()) }

// together returns what is wrong with settings that are right each for itself.
func (t Topic[K, V]) together() error {
	if t.spec.Remote && t.spec.Compact {
		return fmt.Errorf("topic %q: Remote() and Compact(): what is in the object store is not compacted; choose one of them", t.name)
	}
	if least, most := t.spec.MinCompactionLag, t.spec.MaxCompactionLag; most > 0 && least > most {
		return fmt.Errorf("topic %q: MinCompactionLag(%v) is more than MaxCompactionLag(%v)", t.name, least, most)
	}
	if err := t.spec.Compression.CheckLevel(t.spec.CompressionLevel); err != nil {
		return fmt.Errorf("topic %q: CompressionLevel(%d): %w", t.name, t.spec.CompressionLevel, err)
	}
	return nil
}

// Codecs returns the codecs of keys and values: those set, or else the defaults
// r has for the types. A nil r is the empty registry.
func (t Topic[K, V]) Codecs(r *codec.Registry) (codec.Codec[K], codec.Codec[V], error) {
	key, value := t.key, t.value
	var keyErr, valueErr error
	if key == nil {
		if key, keyErr = r.Of[K](); keyErr != nil {
			keyErr = fmt.Errorf("topic %q: no codec for keys of type %s; set one with KeyCodec: %w", t.name, reflect.TypeFor[K](), keyErr)
		}
	}
	if value == nil {
		if value, valueErr = r.Of[V](); valueErr != nil {
			valueErr = fmt.Errorf("topic %q: no codec for values of type %s; set one with ValueCodec: %w", t.name, reflect.TypeFor[V](), valueErr)
		}
	}
	if err := errors.Join(keyErr, valueErr); err != nil {
		return nil, nil, err
	}
	return key, value, nil
}

// EventTimeFunc returns the function set by EventTime, or nil.
func (t Topic[K, V]) EventTimeFunc() func(V) time.Time { return t.eventTime }

// Partitioner returns the function set by PartitionBy, or nil for the default,
// Partition.
func (t Topic[K, V]) Partitioner() func(k K, n int) int { return t.partitionBy }

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
	if p, ok := any(k).(Partitioned); ok && t.key == nil {
		return func(key []byte, n int) int { return Partition(p.PartitionKey(key), n) }
	}
	return Partition
}

// IsUncommitted tells whether Uncommitted was set.
func (t Topic[K, V]) IsUncommitted() bool { return t.uncommitted }

// Isolation returns which records reads of the topic may see.
func (t Topic[K, V]) Isolation() log.Isolation {
	if t.uncommitted {
		return log.ReadUncommitted
	}
	return log.ReadCommitted
}

func (t Topic[K, V]) fault(format string, args ...any) Topic[K, V] {
	t.faults = errors.Join(t.faults, fmt.Errorf("topic %q: "+format, append([]any{t.name}, args...)...))
	return t
}

// checkName refuses what the log does, and the names kept for topics of our own.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty; name the topic with topic.New", log.ErrInvalidName)
	}
	if strings.HasPrefix(name, "__") {
		return fmt.Errorf("%w: %q begins with \"__\", which is reserved; use another", log.ErrInvalidName, name)
	}
	return log.ValidateName(name)
}
