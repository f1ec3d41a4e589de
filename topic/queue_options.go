package topic

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
)

// QueueOptions configures a queue. The zero value suits production. All handles of a
// queue that are open at a time have the same options.
type QueueOptions struct {
	// Lock is how long a delivery belongs to who received it: then the record is
	// handed out again. Extend starts it anew. Zero means 30 s; at least 1 ms.
	Lock time.Duration

	// MaxDeliveries is how often a record is handed out before it is a dead letter.
	// Zero means 5, negative any number.
	MaxDeliveries int

	// Backoff is how long a record waits that was released or whose lock ran out,
	// doubled with each delivery up to MaxBackoff. Zero means 1 s, negative not at all.
	Backoff time.Duration

	// MaxBackoff bounds the back-off. Zero means 1 minute, or Backoff where that is
	// longer.
	MaxBackoff time.Duration

	// DeadLetters is where records go that were rejected, that were delivered
	// MaxDeliveries times, or that expired. The record is there as it was, with
	// headers that say why (see HeaderCause), and in one commit with the end of it in
	// the queue. Without it such records are counted and left where they are.
	DeadLetters Topic[[]byte, []byte]

	// InFlight bounds, for each partition, the records that were delivered and are
	// neither acknowledged nor dead, whether locked or waiting for their next
	// delivery. At the bound no other record is delivered: a queue none of whose
	// records is acknowledged stands still, and Status says so. Zero means 1,000, the
	// most is 100,000.
	InFlight int

	// From is where a new queue begins; one that exists goes on where it was, and in
	// partitions that were added to its topic, which it finds when it is opened, at their
	// beginning. The zero Position is the first record still kept.
	From Position
}

const (
	defaultLock          = 30 * time.Second
	defaultMaxDeliveries = 5
	defaultBackoff       = time.Second
	defaultMaxBackoff    = time.Minute
	defaultInFlight      = 1_000
	maxInFlight          = 100_000

	// lookAhead bounds, for each partition, the records seen that are not due.
	lookAhead = 10_000
)

// withDefaults returns the resolved options.
func (o QueueOptions) withDefaults() (QueueOptions, error) {
	if o.Lock == 0 {
		o.Lock = defaultLock
	}
	if o.MaxDeliveries == 0 {
		o.MaxDeliveries = defaultMaxDeliveries
	}
	if o.Backoff == 0 {
		o.Backoff = defaultBackoff
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = max(defaultMaxBackoff, o.Backoff)
	}
	if o.InFlight == 0 {
		o.InFlight = defaultInFlight
	}
	switch {
	case o.Lock < time.Millisecond:
		return o, fmt.Errorf("topic: QueueOptions.Lock is %v; give 0 or at least 1 ms", o.Lock)
	case o.MaxDeliveries > math.MaxInt32:
		return o, fmt.Errorf("topic: QueueOptions.MaxDeliveries is %d; give a negative number for no limit", o.MaxDeliveries)
	case o.MaxBackoff < o.Backoff:
		return o, fmt.Errorf("topic: QueueOptions.MaxBackoff is %v, below Backoff, %v", o.MaxBackoff, o.Backoff)
	case o.InFlight < 0 || o.InFlight > maxInFlight:
		return o, fmt.Errorf("topic: QueueOptions.InFlight is %d; give 0 or a number up to %d", o.InFlight, maxInFlight)
	}
	if o.hasDeadLetters() {
		if err := o.DeadLetters.Err(); err != nil {
			return o, fmt.Errorf("topic: QueueOptions.DeadLetters: %w", err)
		}
	}
	return o, nil
}

func (o QueueOptions) hasDeadLetters() bool {
	return o.DeadLetters.s != nil
}

// rules are the options as the protocol knows them.
func (o QueueOptions) rules() queue.Rules {
	return queue.Rules{
		Lock:          milliseconds(o.Lock),
		MaxDeliveries: int64(max(o.MaxDeliveries, 0)),
		BackoffMin:    milliseconds(max(o.Backoff, 0)),
		BackoffMax:    milliseconds(max(o.MaxBackoff, 0)),
		InFlight:      o.InFlight,
		LookAhead:     lookAhead,
	}
}

// difference names a field in which the options differ, or "".
func (o QueueOptions) difference(asked QueueOptions) string {
	o.DeadLetters = Topic[[]byte, []byte]{s: &settings{name: o.DeadLetters.Name()}}
	asked.DeadLetters = Topic[[]byte, []byte]{s: &settings{name: asked.DeadLetters.Name()}}
	has, wants := reflect.ValueOf(o), reflect.ValueOf(asked)
	for i := range has.NumField() {
		if name := has.Type().Field(i).Name; name != "From" && !reflect.DeepEqual(has.Field(i).Interface(), wants.Field(i).Interface()) {
			return name
		}
	}
	return ""
}
