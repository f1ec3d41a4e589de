package log

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

const (
	defaultSegmentBytes   = 64 << 20
	defaultSegmentAge     = 7 * 24 * time.Hour
	defaultRetentionCheck = 5 * time.Minute
	defaultIndexInterval  = 4 << 10
	defaultMaxBatchBytes  = 16 << 20
	defaultProducerExpiry = 7 * 24 * time.Hour

	defaultMaxDecompressed = 128 << 20

	defaultCompactionInterval    = 15 * time.Second
	defaultCompactionMemoryBytes = 64 << 20

	defaultMaxOpenSegments = 2048

	defaultRemoteInterval  = 10 * time.Second
	defaultRemoteReadBytes = 4 << 20
	defaultRemoteTimeout   = 30 * time.Second
)

// Options configures Open. The zero value suits production.
type Options struct {
	// FS is where the files are. Nil means the operating system's file system.
	FS vfs.FS

	// Now is the wall clock, for the age of records, segments and producers and the
	// time in markers. Nil means time.Now. A clock that jumps makes a segment roll, a
	// producer expire or retention drop records early or late, and nothing else.
	Now func() time.Time

	// SegmentBytes is the size at which a segment is sealed, for topics that do
	// not say it themselves. Zero means 64 MiB; the most is 2 GiB less one byte.
	SegmentBytes int64

	// SegmentAge seals a segment whose first batch was appended this long ago.
	// Zero means 7 days, negative means never. The age starts anew with the
	// process.
	SegmentAge time.Duration

	// RetentionCheckInterval is the time between two looks for records that are older
	// than their topics keep them. Zero means 5 minutes, negative means never: then
	// age alone drops nothing.
	RetentionCheckInterval time.Duration

	// MaxOpenSegments bounds how many segments are open at a time, of all partitions
	// together: each takes a mapping of its file, and a descriptor while it is the one
	// appended to or was so until a moment ago. When one more is needed, those that
	// nobody used for longest are closed, after a sync where that is due, and opened
	// again by the next append or read. Those in use do not go: as many are open as
	// are read or written at one moment, if that is more. Zero means 2048.
	MaxOpenSegments int

	// IndexIntervalBytes is how many bytes of batches share an index entry. Zero
	// means 4 KiB.
	IndexIntervalBytes int64

	// MaxBatchBytes is the largest encoded batch accepted. Zero means 16 MiB.
	MaxBatchBytes int

	// MaxDecompressedBytes is the most that the records of a batch may decompress to.
	// A batch that would exceed it is ErrTooLarge to whoever appends or reads it, and
	// costs no more memory than that. Zero means 128 MiB.
	MaxDecompressedBytes int

	// ProducerExpiry is how long the last batches of an idle producer id are
	// remembered, so that a repetition is recognised. Zero means 7 days, negative
	// means for ever. An id with an open transaction never expires.
	ProducerExpiry time.Duration

	// CompactionInterval is the time between two looks for compacted partitions that
	// are worth compacting. Zero means 15 s, negative means never: then only
	// Partition.Compact does it.
	CompactionInterval time.Duration

	// CompactionMemoryBytes bounds the memory in which a compaction remembers keys,
	// 30 bytes each, whatever the size of the partition: when the keys do not fit
	// it makes several passes. Zero means 64 MiB, enough for two million keys. One
	// partition is compacted at a time, and less is taken for a smaller one.
	CompactionMemoryBytes int64

	// CompactionBytesPerSecond bounds what compaction reads and writes. Zero means
	// no bound.
	CompactionBytesPerSecond int64

	// CompactionLimit tells how far a partition may be compacted. It is called
	// without locks held, before each compaction. Nil means no limit.
	CompactionLimit func(TopicPartition) CompactionLimit

	// Remote is where sealed segments of topics with TopicSpec.Remote are copied to.
	Remote ObjectStore

	// RemoteInterval is the time between two looks for segments to copy, to drop here
	// and to remove there. Zero means 10 s, negative means never: then only
	// Partition.Offload does it.
	RemoteInterval time.Duration

	// RemoteReadBytes is how much a reader fetches from the object store at once. It
	// holds two such pieces. Zero means 4 MiB.
	RemoteReadBytes int64

	// RemoteTimeout is how long a reader waits for a piece. Zero means 30 s.
	RemoteTimeout time.Duration

	// Logger receives structured events. Nil discards them.
	Logger *slog.Logger
}

// withDefaults returns a resolved copy, or an error that names the field out of
// range.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.SegmentAge == 0 {
		o.SegmentAge = defaultSegmentAge
	}
	if o.RetentionCheckInterval == 0 {
		o.RetentionCheckInterval = defaultRetentionCheck
	}
	if o.IndexIntervalBytes == 0 {
		o.IndexIntervalBytes = defaultIndexInterval
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultMaxBatchBytes
	}
	if o.MaxDecompressedBytes == 0 {
		o.MaxDecompressedBytes = defaultMaxDecompressed
	}
	if o.ProducerExpiry == 0 {
		o.ProducerExpiry = defaultProducerExpiry
	}
	if o.CompactionInterval == 0 {
		o.CompactionInterval = defaultCompactionInterval
	}
	if o.CompactionMemoryBytes == 0 {
		o.CompactionMemoryBytes = defaultCompactionMemoryBytes
	}
	if o.MaxOpenSegments == 0 {
		o.MaxOpenSegments = defaultMaxOpenSegments
	}
	if o.RemoteInterval == 0 {
		o.RemoteInterval = defaultRemoteInterval
	}
	if o.RemoteReadBytes == 0 {
		o.RemoteReadBytes = defaultRemoteReadBytes
	}
	if o.RemoteTimeout == 0 {
		o.RemoteTimeout = defaultRemoteTimeout
	}
	switch {
	case o.RemoteReadBytes < 0 || o.RemoteReadBytes > math.MaxInt32:
		return o, fmt.Errorf("log: Options.RemoteReadBytes is %d, allowed is 1 to %d", o.RemoteReadBytes, math.MaxInt32)
	case o.MaxOpenSegments < 0:
		return o, fmt.Errorf("log: Options.MaxOpenSegments is %d, it cannot be negative", o.MaxOpenSegments)
	case o.RemoteTimeout < 0:
		return o, fmt.Errorf("log: Options.RemoteTimeout is %v, it cannot be negative", o.RemoteTimeout)
	case o.CompactionMemoryBytes < 0:
		return o, fmt.Errorf("log: Options.CompactionMemoryBytes is %d, it cannot be negative", o.CompactionMemoryBytes)
	case o.CompactionBytesPerSecond < 0:
		return o, fmt.Errorf("log: Options.CompactionBytesPerSecond is %d, it cannot be negative", o.CompactionBytesPerSecond)
	case o.SegmentBytes < 0 || o.SegmentBytes > math.MaxInt32:
		return o, fmt.Errorf("log: Options.SegmentBytes is %d, allowed is 1 to %d", o.SegmentBytes, math.MaxInt32)
	case o.IndexIntervalBytes < 0:
		return o, fmt.Errorf("log: Options.IndexIntervalBytes is %d, it cannot be negative", o.IndexIntervalBytes)
	case o.MaxDecompressedBytes < 0 || o.MaxDecompressedBytes >= math.MaxInt32:
		return o, fmt.Errorf("log: Options.MaxDecompressedBytes is %d, allowed is 1 to %d", o.MaxDecompressedBytes, math.MaxInt32-1)
	case o.MaxBatchBytes < batchHeaderBytes || o.MaxBatchBytes > math.MaxInt32:
		return o, fmt.Errorf("log: Options.MaxBatchBytes is %d, allowed is %d to %d", o.MaxBatchBytes, batchHeaderBytes, math.MaxInt32)
	}
	return o, nil
}
