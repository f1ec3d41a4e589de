package topic

import (
	"context"
	"iter"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// GroupNode is what consumers need of the node they run on.
type GroupNode interface {
	Node

	// Topics walks the topics there are.
	Topics() iter.Seq2[string, log.TopicSpec]

	// ProposeGroup takes a step of the group protocol. An error that matches
	// ErrUnknown leaves it open whether it was taken.
	ProposeGroup(ctx context.Context, c group.Command) error

	// Group calls f with a group as it is now, or nil. f neither keeps nor changes it.
	Group(name string, f func(*group.Group))

	// GroupChanged returns a channel that is closed when the members, the target or
	// the owners of a group change.
	GroupChanged(name string) <-chan struct{}

	// ConsumerClosed says that the consumer that was given this node is closed.
	ConsumerClosed()
}
