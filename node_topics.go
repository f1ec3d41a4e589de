package thalweg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Named is a topic of any type: every topic.Topic satisfies it.
type Named interface {
	Name() string
	Spec() log.TopicSpec
	Err() error
}

// Create makes topics that do not exist, all of them or, after an error, none. One that
// exists with the same settings is no error, one with other settings is
// log.ErrTopicExists. Using a topic creates it too, so Create is for those who want the
// error early, or need many: thousands in one call take little longer than one.
func (n *Node) Create(ctx context.Context, topics ...Named) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	specs := make(map[string]log.TopicSpec, len(topics))
	for _, t := range topics {
		if err := t.Err(); err != nil {
			return fmt.Errorf("thalweg: create topic: %w", err)
		}
		if other, twice := specs[t.Name()]; twice && other != t.Spec() {
			return fmt.Errorf("thalweg: create topic %q: %w: it is asked for twice, with different settings", t.Name(), log.ErrTopicExists)
		}
		specs[t.Name()] = t.Spec()
	}
	return n.create(specs)
}

// usedBy returns the name of a running job that reads or writes a topic.
func (n *Node) usedBy(topic string) (job string, used bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for j, app := range n.jobs {
		select {
		case <-j.Done():
			continue
		default:
		}
		read, written := app.Topics()
		if slices.Contains(read, topic) || slices.Contains(written, topic) {
			return app.Name(), true
		}
	}
	return "", false
}

// readsIntoState returns a job that reads a topic into state without a shuffle: one that
// runs, or one that the node remembers from its checkpoints.
func (n *Node) readsIntoState(topic string) (job string, found bool) {
	n.mu.Lock()
	running := slices.Collect(maps.Values(n.jobs))
	n.mu.Unlock()
	for _, app := range running {
		if slices.Contains(app.ReadsIntoState(), topic) {
			return app.Name(), true
		}
	}
	return n.plane.ReadsIntoState(topic)
}

func (n *Node) create(specs map[string]log.TopicSpec) error {
	l := n.plane.Log()
	var missing []string
	for name := range specs {
		if _, exists := l.Spec(name); !exists {
			missing = append(missing, name)
		}
	}
	if err := l.CreateAll(specs); err != nil {
		return fmt.Errorf("thalweg: %w", err)
	}
	for _, name := range missing {
		n.logger.Info("thalweg: topic created", "topic", name, "partitions", specs[name].Partitions)
	}
	return nil
}

// Alter gives topics that exist the settings of their declaration: retention,
// compression, sync policy, size of segments and, upwards, the number of partitions. What is
// open follows at once, except that Delayed and TimeToLive count for what is opened from
// now on.
//
// New partitions are written by producers and transactions from the next record on, and
// read from their beginning: by readers and queues at once, by the consumers of a group
// when they have divided them, by a job from its next start on. A record with a key goes
// to the partition of the new number, also where the older ones of its key are in
// another: their order is that of one partition no more, SendIf does not see their
// versions, and compaction keeps the newest in each. For a topic that a job reads into
// state without a shuffle more partitions are refused (log.ErrNotAlterable).
func (n *Node) Alter(ctx context.Context, topics ...Named) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	for _, t := range topics {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.Err(); err != nil {
			return fmt.Errorf("thalweg: alter topic: %w", err)
		}
		has, _ := n.plane.Log().Spec(t.Name())
		if job, found := n.readsIntoState(t.Name()); found && t.Spec().Partitions > has.Partitions {
			return fmt.Errorf("thalweg: alter topic %q: %w: job %q reads it into state without a shuffle, and its keys would move to other partitions than their state",
				t.Name(), log.ErrNotAlterable, job)
		}
		if err := n.plane.Log().Alter(t.Name(), t.Spec()); err != nil {
			return fmt.Errorf("thalweg: alter topic %q: %w", t.Name(), err)
		}
		n.logger.Info("thalweg: topic altered", "topic", t.Name())
	}
	return nil
}

// Delete removes topics with all their records, the positions that consumer groups
// have in them, and the queues over them. A topic that does not exist is
// log.ErrUnknownTopic, and one that a running job reads or writes is refused, as is one
// whose queue is open (topic.ErrQueueInUse). Producers and readers of the topic must be closed before.
func (n *Node) Delete(ctx context.Context, topics ...Named) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	for _, t := range topics {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name, used := n.usedBy(t.Name()); used {
			return fmt.Errorf("thalweg: delete topic %q: job %q reads or writes it: stop the job first", t.Name(), name)
		}
		if err := n.queues.ForgetTopic(t.Name()); err != nil {
			return fmt.Errorf("thalweg: delete topic %q: forget its queues: %w", t.Name(), err)
		}
		if err := n.plane.ForgetTopic(ctx, t.Name()); err != nil {
			return fmt.Errorf("thalweg: delete topic %q: forget the positions of its consumers: %w", t.Name(), err)
		}
		if err := n.plane.Log().Delete(t.Name()); err != nil {
			return fmt.Errorf("thalweg: delete topic %q: %w", t.Name(), err)
		}
		n.expired.forget(t.Name())
		// Once more, of what consumers have committed meanwhile.
		if err := n.plane.ForgetTopic(ctx, t.Name()); err != nil {
			return fmt.Errorf("thalweg: delete topic %q: forget the positions of its consumers: %w", t.Name(), err)
		}
	}
	return nil
}

// DeleteRecords drops the records before a position from the given partitions of t, or
// from all of them. Readers see at once that they are gone; the space comes back
// segment by segment. A position at or below the first record changes nothing;
// topic.End() is behind the last committed record, so what an open transaction wrote
// stays. A record that is not there yet is a *topic.OffsetError.
//
// A job that has yet to read the records fails when it comes to them, unless its topology
// says SkipDeleted.
func (n *Node) DeleteRecords(ctx context.Context, t Named, before topic.Position, partitions ...int) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	fail := func(err error) error { return fmt.Errorf("thalweg: delete records of topic %q: %w", t.Name(), err) }
	if len(partitions) == 0 {
		spec, ok := n.plane.Log().Spec(t.Name())
		if !ok {
			return fail(log.ErrUnknownTopic)
		}
		for i := range spec.Partitions {
			partitions = append(partitions, i)
		}
	}
	for _, i := range partitions {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := n.plane.Log().Partition(log.TopicPartition{Topic: t.Name(), Partition: log.PartitionID(i)})
		if err != nil {
			return fail(err)
		}
		to, err := before.Resolve(p)
		if outside, ok := errors.AsType[*topic.OffsetError](err); ok && outside.Offset <= outside.Start {
			continue
		}
		if err == nil {
			err = p.DeleteBefore(to)
		}
		if err != nil {
			return fail(err)
		}
	}
	return nil
}

// Producer returns a producer for t, which it creates where it does not exist.
// Whoever asked for it closes it; Node.Close closes those that are left.
func (n *Node) Producer[K, V any](t topic.Topic[K, V]) (*topic.Producer[K, V], error) {
	return n.ProducerWith(t, n.options.Producer)
}

// ProducerWith is Producer with options of its own instead of Options.Producer: with a
// Name, for example, which no two producers of a topic can share. Its clock is
// Options.Log.Now unless o says otherwise.
func (n *Node) ProducerWith[K, V any](t topic.Topic[K, V], o topic.ProducerOptions) (*topic.Producer[K, V], error) {
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if o.Now == nil {
		o.Now = n.options.Log.Now
	}
	host := &producerHost{topicHost: topicHost{n}}
	p, err := topic.NewProducer(context.Background(), host, t, o)
	if err != nil {
		return nil, err
	}
	host.close = p.Close
	n.mu.Lock()
	n.producers[host] = struct{}{}
	n.mu.Unlock()
	return p, nil
}

// Read iterates over the records of t from a position on and waits for more when
// it has reached the end, until ctx ends. It may be used once. Reading creates a topic
// that does not exist, as all use does: a name that is spelled wrong reads as empty,
// and Options.Logger hears of the new topic.
func (n *Node) Read[K, V any](ctx context.Context, t topic.Topic[K, V], from topic.Position) iter.Seq2[topic.Record[K, V], error] {
	return n.read(ctx, func(ctx context.Context) iter.Seq2[topic.Record[K, V], error] {
		return topic.Read(ctx, topicHost{n}, t, from)
	})
}

// ReadToEnd is Read as far as the topic reaches at the call: it does not wait for
// more.
func (n *Node) ReadToEnd[K, V any](ctx context.Context, t topic.Topic[K, V], from topic.Position) iter.Seq2[topic.Record[K, V], error] {
	return n.read(ctx, func(ctx context.Context) iter.Seq2[topic.Record[K, V], error] {
		return topic.ReadToEnd(ctx, topicHost{n}, t, from)
	})
}

// read runs records with a context that also ends when the node is closed.
func (n *Node) read[R any](ctx context.Context, records func(context.Context) iter.Seq2[R, error]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		leave, err := n.enter()
		if err != nil {
			yield(none, err)
			return
		}
		leave() // a reader may last: Close does not wait for it but ends it
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan struct{})
		defer close(ended)
		go func() { // ends with the iteration
			select {
			case <-n.done:
				cancel()
			case <-ended:
			}
		}()
		for r, err := range records(ctx) {
			if err != nil && n.isDone() {
				err = ErrClosed
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (n *Node) isDone() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// topicHost gives package topic what it needs of a node. It is a type of its own
// so that these methods are not among those a user sees.
type topicHost struct{ *Node }

var _ topic.Node = topicHost{}

func (h topicHost) Open(name string, spec log.TopicSpec) ([]*log.Partition, error) {
	leave, err := h.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := h.create(map[string]log.TopicSpec{name: spec}); err != nil {
		return nil, err
	}
	partitions := make([]*log.Partition, spec.Partitions)
	for i := range partitions {
		tp := log.TopicPartition{Topic: name, Partition: log.PartitionID(i)}
		if partitions[i], err = h.plane.Log().Partition(tp); err != nil {
			return nil, fmt.Errorf("thalweg: open topic %q: %w", name, err)
		}
	}
	return partitions, nil
}

func (h topicHost) Partition(tp log.TopicPartition) (*log.Partition, error) {
	return h.plane.Log().Partition(tp)
}

func (h topicHost) TopicsChanged() <-chan struct{} { return h.plane.Log().TopicsChanged() }

// Now is the clock by which records are due and expire.
func (h topicHost) Now() time.Time {
	if now := h.options.Log.Now; now != nil {
		return now()
	}
	return time.Now()
}

// CountExpired counts a record that a reader passed over.
func (h topicHost) CountExpired(tp log.TopicPartition) { h.expired.add(tp) }

func (h topicHost) AcquireProducer(ctx context.Context) (log.ProducerID, error) {
	return h.plane.AcquireProducer(ctx)
}

func (h topicHost) AcquireNamedProducer(ctx context.Context, name string) (log.ProducerID, error) {
	id, err := h.plane.AcquireNamedProducer(ctx, name)
	if errors.Is(err, checkpoint.ErrProducerOpen) {
		return id, fmt.Errorf("%w: %q: close that one first", topic.ErrNameInUse, name)
	}
	return id, err
}

func (h topicHost) ReleaseProducer(id log.ProducerID) error {
	return h.plane.ReleaseProducer(id)
}

// producerHost is the topicHost of one producer: it hears when that producer is
// closed, so that the node need not keep it.
type producerHost struct {
	topicHost
	close func() error // the producer's, set once it is made
}

var _ io.Closer = (*topic.Producer[int, int])(nil)

func (h *producerHost) ReleaseProducer(id log.ProducerID) error {
	h.mu.Lock()
	delete(h.producers, h)
	h.mu.Unlock()
	return h.topicHost.ReleaseProducer(id)
}
