package topic

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/log"
)

// Position says where in a partition to start reading. The zero Position is
// Start.
type Position struct {
	kind  positionKind
	value int64 // the offset, or Unix milliseconds
}

type positionKind uint8

const (
	positionStart positionKind = iota
	positionEnd
	positionAt
	positionOffset
)

// Start is the first record still kept.
func Start() Position { return Position{} }

// End is behind the last record that can be seen at the moment it is resolved.
// For a reader of committed records that is the last stable offset: a
// transaction open at that moment is read once it commits, rather than lost.
// For a reader of everything it is the high watermark.
func End() Position { return Position{kind: positionEnd} }

// At is the first record with a time of t or later, in milliseconds, the unit
// records keep; when there is none, At is End. Records behind it may have
// earlier times, since times need not ascend.
func At(t time.Time) Position { return Position{kind: positionAt, value: t.UnixMilli()} }

// Offset is the record at offset off, or the place where the record with that
// offset will be. Reading a topic of several partitions from it starts each of
// them there.
func Offset(off int64) Position { return Position{kind: positionOffset, value: off} }

// String returns the position as written in Go, without the package's name.
func (p Position) String() string {
	switch p.kind {
	case positionEnd:
		return "End()"
	case positionAt:
		return fmt.Sprintf("At(%s)", time.UnixMilli(p.value).UTC().Format(time.RFC3339Nano))
	case positionOffset:
		return fmt.Sprintf("Offset(%d)", p.value)
	}
	return "Start()"
}

// Resolve returns the offset p means in lp now, for a reader of committed
// records. An offset that lp does not hold is an *OffsetError.
func (p Position) Resolve(lp *log.Partition) (log.Offset, error) {
	return p.ResolveFor(lp, log.ReadCommitted)
}

// ResolveFor is Resolve for a reader of the given isolation.
func (p Position) ResolveFor(lp *log.Partition, iso log.Isolation) (log.Offset, error) {
	switch p.kind {
	case positionEnd:
		return visibleEnd(lp, iso), nil
	case positionAt:
		// The end comes first: a record that arrives after the search and would
		// have been found is then behind the end, and so read.
		end := visibleEnd(lp, iso)
		off, found, err := lp.OffsetAt(p.value)
		if err != nil {
			return 0, fmt.Errorf("topic: find %s in %s: %w", p, lp.Name(), err)
		}
		if !found {
			return end, nil
		}
		return off, nil
	case positionOffset:
		if err := checkOffset(lp, log.Offset(p.value)); err != nil {
			return 0, err
		}
		return log.Offset(p.value), nil
	}
	return lp.Start(), nil
}

// visibleEnd is the first offset a reader of the given isolation cannot see now.
func visibleEnd(lp *log.Partition, iso log.Isolation) log.Offset {
	if iso == log.ReadCommitted {
		return lp.LastStable()
	}
	return lp.HighWatermark()
}

func checkOffset(lp *log.Partition, off log.Offset) error {
	if start, end := lp.Start(), lp.End().Offset; off < start || off > end {
		return &OffsetError{Partition: lp.Name(), Offset: off, Start: start, End: end}
	}
	return nil
}
