package log

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Offset is the position of a record in a partition.
type Offset int64

// LeaderEpoch numbers a leader's reign over a partition; on one node it grows
// at every start that follows an unclean stop.
type LeaderEpoch int32

// endOfEpochs is no epoch that anything is written in, since none comes after it.
const endOfEpochs LeaderEpoch = math.MaxInt32

// ProducerID names the writer of a batch. Ids come in blocks, each with one owner.
type ProducerID int64

// NoProducer marks a batch without sequence numbers.
const NoProducer ProducerID = -1

// PartitionID numbers the partitions of a topic from 0.
type PartitionID int32

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition PartitionID
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Position is an offset together with the leader epoch of the record before it.
// It is only meaningful in a log that holds that very record.
type Position struct {
	Offset Offset
	Epoch  LeaderEpoch
}

// Header is a name and a value that travel with a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. A nil Key or Value is absent, which differs from empty.
// Time is in milliseconds since the Unix epoch and may be negative.
type Record struct {
	Offset     Offset
	Time       int64
	Key, Value []byte
	Headers    []Header
}

// Isolation tells a reader which records it may see.
type Isolation uint8

const (
	// ReadCommitted sees up to the last stable offset, without aborted records.
	ReadCommitted Isolation = iota
	// ReadUncommitted sees up to the high watermark, open and aborted records too.
	ReadUncommitted
	// ReadDecided sees up to the high watermark, without records whose abort marker
	// the partition has. It is for readers who know from the metadata log that all
	// below the position they read to is decided.
	ReadDecided
	// ReadAppended sees up to the end, also what is not acknowledged yet and may be
	// gone after a power cut, without records whose abort marker the partition has. It
	// is for conditions on what is there: see Partition.WriteIf.
	ReadAppended
)

// Sync says when appended data is made durable.
type Sync time.Duration

const (
	// SyncByOS leaves it to the operating system: a killed process loses
	// nothing, a power cut may take what was not written back yet. The default.
	SyncByOS Sync = 0
	// SyncAlways acknowledges an append only once it is durable; appends that
	// wait together share one sync.
	SyncAlways Sync = -1
)

// SyncEvery makes data durable at least every d; appends do not wait for it.
func SyncEvery(d time.Duration) Sync { return Sync(d) }

func (s Sync) String() string {
	switch {
	case s == SyncByOS:
		return "by the operating system"
	case s == SyncAlways:
		return "always"
	}
	return "every " + time.Duration(s).String()
}

var (
	// ErrClosed is returned by what is used after Close.
	ErrClosed = errors.New("log: closed")

	// ErrOffsetOutOfRange is matched where an offset is outside of what a partition
	// holds, [Start, End]: it was deleted, cut away, or is not written yet.
	ErrOffsetOutOfRange = errors.New("log: offset out of range")

	// ErrFenced refuses a batch or an end of a transaction whose producer id is over.
	// It stays refused.
	ErrFenced = errors.New("log: producer is fenced: its owner or its transaction has ended")

	// ErrUnknownOwner refuses a batch whose producer id may become known: Append waits
	// for that, Write does not.
	ErrUnknownOwner = errors.New("log: owner of the producer id is not known here yet")

	// ErrOutOfOrder refuses a batch whose sequence number leaves a gap, or repeats one
	// that is not remembered.
	ErrOutOfOrder = errors.New("log: sequence number out of order")

	// ErrUnknownTopic is matched where a topic or a partition does not exist.
	ErrUnknownTopic = errors.New("log: unknown topic")

	// ErrTopicExists is matched by Create for a topic with other settings, which the
	// error names.
	ErrTopicExists = errors.New("log: topic exists with other settings")

	// ErrNotAlterable refuses a change of a topic's settings, and says why.
	ErrNotAlterable = errors.New("log: setting cannot be changed")

	// ErrTooLarge refuses a batch above Options.MaxBatchBytes, one with a record above
	// the topic's MaxRecordBytes, and one that decompresses to more than
	// Options.MaxDecompressedBytes, which its reader is told, too.
	ErrTooLarge = errors.New("log: batch exceeds the largest size allowed")

	// ErrNoKey refuses a record without a key for a compacted topic, which could
	// never tell which record replaces it.
	ErrNoKey = errors.New("log: record without a key for a compacted topic")

	// ErrInvalidBatch is matched by the error for bytes that are no batch, or not the
	// one that belongs there.
	ErrInvalidBatch = errors.New("log: invalid record batch")

	// ErrInvalidName refuses a topic's name.
	ErrInvalidName = errors.New("log: invalid topic name")

	// ErrVersion is matched where a file has a format that this version does not know.
	ErrVersion = errors.New("log: unknown format version")

	// ErrReadOnly refuses what would write to a log from OpenReadOnly, and ends the wait
	// for more records, which cannot come.
	ErrReadOnly = errors.New("log: open for reading only")

	// ErrOffline refuses everything but reading after a write or sync has failed,
	// until the log is opened again.
	ErrOffline = errors.New("log: partition is offline after a failed write or sync")
)

// CorruptionError reports damage below the recovery point, or met while reading.
type CorruptionError struct {
	File     string
	Position int64  // byte position in File
	Offset   Offset // first offset affected, or -1
	Cause    error
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("log: %s is damaged at byte %d (offset %d): %v", e.File, e.Position, e.Offset, e.Cause)
}

func (e *CorruptionError) Unwrap() error { return e.Cause }
