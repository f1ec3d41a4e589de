package group

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnknown says that there is no such group.
	ErrUnknown = errors.New("group: no such group")

	// ErrNotMember says that a membership is over, or never was.
	ErrNotMember = errors.New("group: not a member")

	// ErrStaticInUse says that another consumer that is there has the static id.
	ErrStaticInUse = errors.New("group: the static id is in use")

	// ErrEpoch says that the group has changed since a target was computed.
	ErrEpoch = errors.New("group: the group has changed")

	// ErrNotEmpty says that a group has members, and what was asked needs it to have none.
	ErrNotEmpty = errors.New("group: the group has members")

	// ErrStale is matched by a *StaleError.
	ErrStale = errors.New("group: the partition is not owned any more")
)

// StaleError says that positions were committed for partitions the member does not
// own, or not under the grant it names. It matches ErrStale.
type StaleError struct {
	Group      string
	Partitions []Partition // ascending
}

func (e *StaleError) Error() string {
	var b strings.Builder
	for i, p := range e.Partitions {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Partitions)-i)
			break
		}
		fmt.Fprintf(&b, " %s-%d", p.Topic, p.Number)
	}
	return fmt.Sprintf("%v: group %q,%s", ErrStale, e.Group, b.String())
}

// Is makes the error match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }
