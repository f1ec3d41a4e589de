package topic

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

var (
	// ErrUnknown is matched by an error after which the records may be in the
	// log all the same, now or later. Any other error of a producer means that
	// they are not.
	ErrUnknown = errors.New("topic: outcome unknown")

	// ErrClosed is returned by the methods of a closed producer or consumer.
	ErrClosed = errors.New("topic: closed")

	// ErrTimeout is matched where a record was not written within
	// ProducerOptions.DeliveryTimeout. It never will be, unless ErrUnknown matches too.
	ErrTimeout = errors.New("topic: not delivered in time")

	// ErrConflict is matched by a *ConflictError: the condition of SendIf does not hold.
	ErrConflict = errors.New("topic: conflict")

	// ErrNameInUse is returned for a producer whose name an open one has. Close that
	// one first.
	ErrNameInUse = errors.New("topic: a producer of this name is open")

	// ErrFenced is matched by the errors of a TxProducer that is over: a newer one has its
	// name, its transaction was open for too long, or it was aborted by name. What it
	// had open is aborted.
	ErrFenced = errors.New("topic: fenced")

	// ErrTxEnded is matched where a transaction is needed and none is open.
	ErrTxEnded = errors.New("topic: no transaction is open")

	// ErrTxOpen is returned by Begin while a transaction is open.
	ErrTxOpen = errors.New("topic: a transaction is open")

	// ErrNoKey is matched where a record has no key and one is needed: to
	// delete, for a condition on its version, and for a topic with its own PartitionBy.
	ErrNoKey = errors.New("topic: record has no key")

	// ErrNoPosition says that a group has no position in a partition, and
	// ConsumerOptions.NoReset is set.
	ErrNoPosition = errors.New("topic: the group has no position")

	// ErrTruncated says that the records before a group's position are not those it
	// has read, and ConsumerOptions.NoReset is set.
	ErrTruncated = errors.New("topic: the log was truncated")

	// ErrNotAssigned says that a consumer does not read the partition at present.
	ErrNotAssigned = errors.New("topic: the partition is not assigned to this consumer")

	// ErrStale is matched where a position is refused, because the consumer does not
	// own the partition any more, or not since when it read it. Others have it.
	ErrStale = group.ErrStale

	// ErrStaticInUse says that a consumer with this static id is in the group.
	ErrStaticInUse = group.ErrStaticInUse

	// ErrUnknownGroup says that there is no such group.
	ErrUnknownGroup = group.ErrUnknown

	// ErrGroupInUse says that a group has consumers, so that its positions cannot be
	// reset and it cannot be deleted.
	ErrGroupInUse = group.ErrNotEmpty
)

// CodecError reports a key or value that its codec could not encode or decode.
type CodecError struct {
	Topic     string
	Partition int    // -1 while encoding
	Offset    int64  // -1 while encoding
	Part      string // "key" or "value"
	Type      string // the Go type
	Err       error  // what the codec returned
}

func (e *CodecError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("topic %q: encode %s of type %s: %v", e.Topic, e.Part, e.Type, e.Err)
	}
	return fmt.Sprintf("topic %q: decode %s of type %s at partition %d, offset %d: %v",
		e.Topic, e.Part, e.Type, e.Partition, e.Offset, e.Err)
}

func (e *CodecError) Unwrap() error { return e.Err }

// OffsetError reports a position outside of what a partition holds. It matches
// log.ErrOffsetOutOfRange.
type OffsetError struct {
	Partition  TopicPartition
	Offset     LogOffset
	Start, End LogOffset // both are valid positions
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("topic: offset %d of %s is out of range [%d, %d]", e.Offset, e.Partition, e.Start, e.End)
}

// Is makes the error match log.ErrOffsetOutOfRange.
func (e *OffsetError) Is(target error) bool { return target == log.ErrOffsetOutOfRange }

// TooLargeError reports a record that is too large for its topic or for any batch. It
// matches log.ErrTooLarge.
type TooLargeError struct {
	Topic       string
	Size, Limit int    // bytes, encoded
	Setting     string // what sets the limit
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("topic %q: a record of %d bytes exceeds the limit of %d bytes, set by %s: make the record smaller, or raise that",
		e.Topic, e.Size, e.Limit, e.Setting)
}

// Is makes the error match log.ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == log.ErrTooLarge }

// FlushError tells how many queued records failed since the last Flush.
type FlushError struct {
	Failed  int   // records
	First   error // of the first that failed
	unknown bool  // one of them at least matched ErrUnknown
}

func (e *FlushError) Error() string {
	if e.Failed == 1 {
		return fmt.Sprintf("topic: a queued record failed: %v", e.First)
	}
	return fmt.Sprintf("topic: %d queued records failed, the first: %v", e.Failed, e.First)
}

// Unwrap returns the first failure and, where any outcome is unknown, ErrUnknown.
func (e *FlushError) Unwrap() []error {
	if e.unknown {
		return []error{e.First, ErrUnknown}
	}
	return []error{e.First}
}
