package topic

import (
	"fmt"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// Reset tells that a consumer goes on elsewhere than at the position of its group.
type Reset struct {
	Group     string
	Partition TopicPartition
	Reason    ResetReason

	// From is the position that cannot be used, -1 where there was none, and To the
	// one that is used instead.
	From, To int64

	// Start and End are what the partition holds; both are valid positions.
	Start, End int64

	// Skipped counts the offsets passed over, from From, or from Start where there
	// was no position, to To. It is zero where To is before.
	Skipped int64
}

// ResetReason says why a position cannot be used.
type ResetReason uint8

const (
	NoPosition ResetReason = iota + 1 // the group has none for the partition
	OutOfRange                        // it is before the first record kept, or behind the end
	Truncated                         // the records before it are not those that were read: a crash took their end
)

func (r ResetReason) String() string {
	return [...]string{"", "no position", "out of range", "truncated"}[r]
}

// unknownEpoch marks a position whose leader epoch nobody told.
const unknownEpoch = -1

// place returns where to read lp from, for a group whose position is at, if it has
// one (known). It tells a reset, or fails as ConsumerOptions.NoReset asks.
func (o *ConsumerOptions) place(name string, lp *log.Partition, iso log.Isolation, at group.Position, known bool) (log.Offset, *Reset, error) {
	start, end := lp.Start(), lp.End().Offset
	off := log.Offset(at.Offset)
	told := at.LeaderEpoch != unknownEpoch
	r := &Reset{Group: name, Partition: lp.Name(), From: at.Offset, Start: int64(start), End: int64(end)}
	switch {
	case !known:
		r.Reason, r.From = NoPosition, -1
	case told && off > start && !lp.Contains(log.Position{Offset: off, Epoch: log.LeaderEpoch(at.LeaderEpoch)}):
		// What was read up to off is there only as far as its epoch goes.
		r.Reason, r.To = Truncated, int64(min(lp.EndOfEpoch(log.LeaderEpoch(at.LeaderEpoch)), off))
	case off < start || off > end:
		r.Reason = OutOfRange
	default:
		return off, nil, nil
	}
	if o.NoReset {
		return 0, nil, r.err()
	}
	if r.Reason == Truncated && r.To >= r.Start {
		return log.Offset(r.To), r, nil
	}
	to, err := o.Reset.ResolveFor(lp, iso)
	if err != nil {
		return 0, nil, err
	}
	r.To = int64(to)
	from := r.From
	if r.Reason == NoPosition {
		from = r.Start
	}
	r.Skipped = max(r.To-from, 0)
	return to, r, nil
}

// err is what there is instead of the reset.
func (r *Reset) err() error {
	switch r.Reason {
	case NoPosition:
		return fmt.Errorf("%w: group %q, %s holds [%d, %d]: seek, or reset the group", ErrNoPosition, r.Group, r.Partition, r.Start, r.End)
	case Truncated:
		return fmt.Errorf("%w: group %q has read %s up to %d, of which the log has kept [%d, %d): seek, or reset the group",
			ErrTruncated, r.Group, r.Partition, r.From, r.Start, r.To)
	}
	return &OffsetError{Partition: r.Partition, Offset: LogOffset(r.From), Start: LogOffset(r.Start), End: LogOffset(r.End)}
}
