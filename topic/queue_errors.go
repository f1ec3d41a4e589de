package topic

import (
	"errors"
	"fmt"
)

var (
	// ErrQueueClosed is returned by the methods of a queue that is closed and of the
	// deliveries it made.
	ErrQueueClosed = errors.New("topic: queue is closed")

	// ErrUnknownQueue is matched where no queue has the name.
	ErrUnknownQueue = errors.New("topic: unknown queue")

	// ErrQueueInUse is matched where a queue is open, and what was asked needs it to be
	// closed, or open with other options.
	ErrQueueInUse = errors.New("topic: queue is open")

	// ErrDeliveryOver is matched by a *DeliveryOverError.
	ErrDeliveryOver = errors.New("topic: the delivery is over")
)

// DeliveryOverError refuses an answer to a delivery: its lock ran out and the record
// was handed out again or became a dead letter, or it was answered before. Nothing was
// changed by it. It matches ErrDeliveryOver.
type DeliveryOverError struct {
	Queue     string
	Partition int
	Offset    int64
	Count     int // of the delivery that is over
}

func (e *DeliveryOverError) Error() string {
	return fmt.Sprintf("%v: queue %q, partition %d, offset %d, delivery %d: it was answered, or its lock ran out: extend it in time, or give QueueOptions.Lock more",
		ErrDeliveryOver, e.Queue, e.Partition, e.Offset, e.Count)
}

// Is makes the error match ErrDeliveryOver.
func (e *DeliveryOverError) Is(target error) bool { return target == ErrDeliveryOver }
