package topic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
	"github.com/thalweg/thalweg/log"
)

// QueueNode is what queues need of the node they run on.
type QueueNode interface {
	Node

	// Topics walks the topics there are, by name.
	Topics() iter.Seq2[string, log.TopicSpec]

	// AlterTopic gives a topic that exists other settings.
	AlterTopic(name string, spec log.TopicSpec) error

	// DeleteTopic removes a topic with all its records.
	DeleteTopic(name string) error

	// Transact runs f in a transaction, which it commits if f returns nil.
	Transact(ctx context.Context, f func(*Tx) error) error
}

// QueuesOptions configures Queues. The zero value suits production.
type QueuesOptions struct {
	// Now is the clock of locks, back-off, delays and expiry. Nil means time.Now. One
	// that jumps ends locks and delays early or late.
	Now func() time.Time

	// SegmentBytes is the size at which a segment of a queue's state is sealed, which
	// is also what its deletion is done by. Zero means 4 MiB.
	SegmentBytes int64

	// SnapshotBytes is how many bytes of changes a queue writes, at the least, before it
	// replaces them by a snapshot. Zero means 1 MiB.
	SnapshotBytes int

	// Logger receives structured events. Nil discards them.
	Logger *slog.Logger
}

const defaultStateSegmentBytes = 4 << 20

// Queues are the queues of a node. Its methods may be called concurrently.
type Queues struct {
	node QueueNode
	opts QueuesOptions // resolved

	mu     sync.Mutex // guards the fields below, and is held while a queue is opened or closed
	open   map[string]*queueCore
	closed bool
}

// NewQueues returns the queues of n. None is opened yet.
func NewQueues(n QueueNode, o QueuesOptions) *Queues {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultStateSegmentBytes
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = defaultSnapshotAfter
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Queues{node: n, opts: o, open: map[string]*queueCore{}}
}

// queuePrefix begins the names of the topics that hold the states of queues.
const queuePrefix = "__thalweg_queue_"

// Open opens a queue over t, and begins it where it does not exist. A name is that of
// one topic's queue: over another it is ErrQueueInUse, and so it is while the queue is
// open with other options. Close the handle when done with it.
func (qs *Queues) Open[K, V any](t Topic[K, V], name string, o QueueOptions) (*Queue[K, V], error) {
	keys, values, err := t.Codecs(nil)
	if err := errors.Join(t.Err(), err); err != nil {
		return nil, err
	}
	if err := log.ValidateName(queuePrefix + name); err != nil || name == "" {
		return nil, fmt.Errorf("topic: name of a queue: %w", errors.Join(err, checkName(name)))
	}
	if t.IsUncommitted() {
		return nil, fmt.Errorf("topic: open queue %q: topic %q is Uncommitted, and a queue delivers committed records only: leave Uncommitted out", name, t.Name())
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.closed {
		return nil, ErrQueueClosed
	}
	core := qs.open[name]
	switch {
	case core == nil:
		if core, err = qs.start(t.Name(), t.Spec(), t.timing(qs.node), name, o); err != nil {
			return nil, err
		}
		qs.open[name] = core
	case core.topic != t.Name():
		return nil, fmt.Errorf("%w: %q is a queue over topic %q: use another name for one over %q", ErrQueueInUse, name, core.topic, t.Name())
	default:
		if field := core.opts.difference(o); field != "" {
			return nil, fmt.Errorf("%w: queue %q, with another QueueOptions.%s: give the same, or close it first", ErrQueueInUse, name, field)
		}
	}
	core.handles++
	return &Queue[K, V]{core: core, decoder: decoder[K, V]{topic: t.Name(), keys: keys, values: values, timing: timing{on: timed(t.Spec())}}, closed: make(chan struct{})}, nil
}

// start opens the partitions of a queue.
func (qs *Queues) start(topic string, spec log.TopicSpec, timed timing, name string, o QueueOptions) (*queueCore, error) {
	records, err := qs.node.Open(topic, spec)
	if err != nil {
		return nil, fmt.Errorf("topic: open %q: %w", topic, err)
	}
	if o.hasDeadLetters() {
		if _, err := open(qs.node, o.DeadLetters.s); err != nil {
			return nil, fmt.Errorf("topic: open %q: %w", o.DeadLetters.Name(), err)
		}
	}
	states, err := qs.states(name, len(records), spec)
	if err != nil {
		return nil, err
	}
	return openQueue(qs, name, topic, o, records, states, timed)
}

// states opens the topic with the state of a queue over n partitions.
func (qs *Queues) states(name string, n int, records log.TopicSpec) ([]*log.Partition, error) {
	spec := qs.specOf(queuePrefix + name)
	switch has := spec; {
	case has.Partitions == 0:
		spec = log.TopicSpec{Partitions: n, Sync: records.Sync, SegmentBytes: qs.opts.SegmentBytes}
	case has.Partitions < n || has.Sync != records.Sync: // the topic was altered
		spec.Partitions, spec.Sync = max(has.Partitions, n), records.Sync
		if err := qs.node.AlterTopic(queuePrefix+name, spec); err != nil {
			return nil, fmt.Errorf("topic: open the state of queue %q: %w", name, err)
		}
	}
	states, err := qs.node.Open(queuePrefix+name, spec)
	if err != nil {
		return nil, fmt.Errorf("topic: open the state of queue %q: %w", name, err)
	}
	return states, nil
}

// specOf returns the settings of a topic, which has no partitions where it does not exist.
func (qs *Queues) specOf(topic string) (spec log.TopicSpec) {
	for name, has := range qs.node.Topics() {
		if name == topic {
			spec = has
		}
	}
	return spec
}

// leave closes core with its last handle.
func (qs *Queues) leave(core *queueCore) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if core.handles--; core.handles == 0 && qs.open[core.name] == core {
		delete(qs.open, core.name)
		core.close()
	}
}

// Close closes all queues. Who receives or waits for an answer gets ErrQueueClosed. It
// is safe to repeat.
func (qs *Queues) Close() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.closed = true
	for name, core := range qs.open {
		delete(qs.open, name)
		core.close()
	}
}

// Names returns the names of all queues, ascending, open or not.
func (qs *Queues) Names() []string {
	var names []string
	for name := range qs.node.Topics() {
		if name, ok := strings.CutPrefix(name, queuePrefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Status tells how a queue is, open or not. One that does not exist is
// ErrUnknownQueue.
func (qs *Queues) Status(ctx context.Context, name string) (QueueStatus, error) {
	qs.mu.Lock()
	core := qs.open[name]
	if core != nil {
		core.handles++
	}
	closed := qs.closed
	qs.mu.Unlock()
	switch {
	case closed:
		return QueueStatus{}, ErrQueueClosed
	case core != nil:
		defer qs.leave(core)
		return core.status(ctx)
	}
	return qs.read(name)
}

// read folds the state of a queue that is not open.
func (qs *Queues) read(name string) (QueueStatus, error) {
	qs.mu.Lock() // nobody opens or deletes it meanwhile
	defer qs.mu.Unlock()
	s := QueueStatus{Name: name}
	states, err := qs.existing(name)
	if err != nil {
		return s, err
	}
	var records []*log.Partition
	for i, sp := range states {
		j := queueJournal{partition: sp}
		state, err := j.fold()
		if err != nil {
			return s, fmt.Errorf("topic: read the state of queue %q: %w", name, err)
		}
		if state == nil {
			continue // a crash came between the making of the topic and its first record
		}
		if records == nil {
			s.Topic = j.topic
			if records, err = qs.openExisting(j.topic); err != nil {
				return s, fmt.Errorf("topic: read the topic of queue %q: %w", name, err)
			}
		}
		state.Resume(qs.opts.Now().UnixMilli(), queue.Rules{})
		ps := statusOf(state)
		ps.Partition = i
		if i < len(records) {
			if err := describeRecords(&ps, state, records[i]); err != nil {
				return s, err
			}
		}
		s.Partitions = append(s.Partitions, ps)
	}
	return s, nil
}

// existing opens the state of a queue that exists.
func (qs *Queues) existing(name string) ([]*log.Partition, error) {
	states, err := qs.openExisting(queuePrefix + name)
	if errors.Is(err, log.ErrUnknownTopic) {
		return nil, fmt.Errorf("%w: %q", ErrUnknownQueue, name)
	}
	return states, err
}

func (qs *Queues) openExisting(topic string) ([]*log.Partition, error) {
	spec := qs.specOf(topic)
	if spec.Partitions == 0 {
		return nil, fmt.Errorf("%w: %q", log.ErrUnknownTopic, topic)
	}
	return qs.node.Open(topic, spec)
}

// Delete removes a queue with its state; the records of its topic stay. One that is
// open is ErrQueueInUse, one that does not exist ErrUnknownQueue.
func (qs *Queues) Delete(name string) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.deleteLocked(name)
}

func (qs *Queues) deleteLocked(name string) error {
	if qs.open[name] != nil {
		return fmt.Errorf("%w: %q: close it first", ErrQueueInUse, name)
	}
	err := qs.node.DeleteTopic(queuePrefix + name)
	if errors.Is(err, log.ErrUnknownTopic) {
		return fmt.Errorf("%w: %q", ErrUnknownQueue, name)
	}
	return err
}

// ForgetTopic removes the queues over a topic that is being deleted. While one of them
// is open it is ErrQueueInUse, and none is removed.
func (qs *Queues) ForgetTopic(topic string) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for name, core := range qs.open {
		if core.topic == topic || core.opts.DeadLetters.Name() == topic {
			return fmt.Errorf("%w: %q uses topic %q: close it first", ErrQueueInUse, name, topic)
		}
	}
	for _, name := range qs.Names() {
		states, err := qs.existing(name)
		if err != nil {
			return err
		}
		over, err := topicOf(states)
		if err != nil {
			return fmt.Errorf("topic: read the state of queue %q: %w", name, err)
		}
		if over == topic {
			if err := qs.deleteLocked(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// topicOf returns the topic of the queue with these states.
func topicOf(states []*log.Partition) (string, error) {
	for _, sp := range states {
		j := queueJournal{partition: sp}
		if _, err := j.fold(); err != nil || j.topic != "" {
			return j.topic, err
		}
	}
	return "", nil
}
