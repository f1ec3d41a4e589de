package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ConsumerOptions configures a consumer. The zero value suits production: at least
// once, positions committed every second, sticky assignment, and a group without a
// position begins at the first record.
type ConsumerOptions struct {
	// Reset is where to go on in a partition where the group has no position, or one
	// that the log does not hold any more: Start, End or At. Zero means Start. Each
	// reset is told to OnReset and to Logger.
	Reset Position

	// NoReset makes it an error instead: ErrNoPosition, an *OffsetError or
	// ErrTruncated. Nothing of the partition is delivered until SeekPartition says
	// where to go on.
	NoReset bool

	// Delivery says when positions are committed: behind records that the program
	// has finished, or before it gets them. Zero means AtLeastOnce.
	Delivery Delivery

	// CommitInterval is the time between two automatic commits of what the program
	// has finished. They are also made at Close and before a partition is given up.
	// Zero means 1 s; negative leaves all commits to the program.
	CommitInterval time.Duration

	// StaticID names this consumer over restarts of the program, within its group.
	// A consumer with a static id keeps its partitions when it is closed or its
	// process ends, until one with the id comes back or SessionTimeout is over.
	// Empty means that its partitions go to the others at once.
	StaticID string

	// SessionTimeout is how long the partitions of a static consumer that is gone
	// wait for it. Zero means 45 s.
	SessionTimeout time.Duration

	// PollTimeout is how long the program may take over what it was given. A consumer
	// that is not asked for more, and whose loop has finished no record, for so long,
	// and up to a quarter more, loses its partitions to the others; when it is asked
	// again it is told by OnLost and joins anew. Zero means 5 min.
	PollTimeout time.Duration

	// MaxPollRecords bounds what Poll and Batches hand out at once. Zero means as
	// many as were stored together.
	MaxPollRecords int

	// Assignor spreads the partitions over the consumers of the group. That of the
	// consumer that has been in the group for longest is asked. Nil means Sticky.
	Assignor Assignor

	// OnAssign is told of partitions before their first record is delivered; it may
	// seek and pause them. OnRevoke is told of partitions that are to be given up
	// before they are: it may commit. OnLost is told of partitions that are gone
	// already, since the consumer did not poll in time: what it did with them since
	// the last commit others do again. All are called by the goroutine that reads,
	// OnRevoke and OnLost also by the one that calls Close. Nil ones are not called.
	OnAssign, OnRevoke, OnLost func(ctx context.Context, partitions []TopicPartition)

	// OnReset is told of each reset before the first record from the new place is
	// delivered, by the goroutine that reads.
	OnReset func(Reset)

	// Logger receives structured events. Nil discards them.
	Logger *slog.Logger
}

// Delivery says what a crash does to records that were handed out.
type Delivery uint8

const (
	// AtLeastOnce commits positions behind what the program has finished: a crash
	// delivers again what was not committed yet.
	AtLeastOnce Delivery = iota

	// AtMostOnce commits the position behind a stored batch before handing out its
	// records: a crash loses those that were not handled yet.
	AtMostOnce
)

const (
	defaultCommitInterval = time.Second
	defaultSessionTimeout = 45 * time.Second
	defaultPollTimeout    = 5 * time.Minute
	maxStaticID           = 255
)

func (o ConsumerOptions) withDefaults() (ConsumerOptions, error) {
	switch {
	case o.Reset.kind == positionOffset:
		return o, fmt.Errorf("topic: ConsumerOptions.Reset is %s: give Start, End or At; SeekPartition goes to an offset", o.Reset)
	case o.Delivery > AtMostOnce:
		return o, fmt.Errorf("topic: ConsumerOptions.Delivery is %d: give AtLeastOnce or AtMostOnce", o.Delivery)
	case o.Delivery == AtMostOnce && o.CommitInterval < 0:
		return o, errors.New("topic: ConsumerOptions.CommitInterval is negative with AtMostOnce, which commits before it delivers: leave it out")
	case len(o.StaticID) > maxStaticID:
		return o, fmt.Errorf("topic: ConsumerOptions.StaticID has %d bytes: give at most %d", len(o.StaticID), maxStaticID)
	case o.SessionTimeout < 0:
		return o, fmt.Errorf("topic: ConsumerOptions.SessionTimeout is %v: it must not be negative", o.SessionTimeout)
	case o.PollTimeout < 0:
		return o, fmt.Errorf("topic: ConsumerOptions.PollTimeout is %v: it must not be negative", o.PollTimeout)
	case o.MaxPollRecords < 0:
		return o, fmt.Errorf("topic: ConsumerOptions.MaxPollRecords is %d: it must not be negative", o.MaxPollRecords)
	}
	if o.CommitInterval == 0 {
		o.CommitInterval = defaultCommitInterval
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = defaultSessionTimeout
	}
	if o.PollTimeout == 0 {
		o.PollTimeout = defaultPollTimeout
	}
	if o.Assignor == nil {
		o.Assignor = Sticky
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// automatic tells whether finished records are committed without being asked.
func (o *ConsumerOptions) automatic() bool {
	return o.CommitInterval > 0 && o.Delivery == AtLeastOnce
}
