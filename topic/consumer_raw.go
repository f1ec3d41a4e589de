package topic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// Subscription says which topics a RawConsumer reads. It is a plain value; its methods
// return changed copies, and a mistake is kept until it is used.
type Subscription struct {
	names       []string
	pattern     string
	uncommitted bool
	onExpired   func(topic string, partition int, offset int64)
	faults      error
}

// Topics subscribes to topics by name. One that does not exist is read once it does.
func Topics(names ...string) Subscription {
	var s Subscription
	for _, name := range names {
		s.faults = errors.Join(s.faults, checkName(name))
	}
	slices.Sort(names)
	s.names = slices.Compact(slices.Clone(names))
	return s
}

// Matching subscribes to all topics whose whole name matches a regular expression, in
// the syntax of package regexp, now or later. Internal topics, whose names begin with
// "__", never do.
func Matching(pattern string) Subscription { return Subscription{}.Matching(pattern) }

// Matching adds the topics that match a pattern to those named.
func (s Subscription) Matching(pattern string) Subscription {
	_, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		s.faults = errors.Join(s.faults, fmt.Errorf("topic: Matching(%q): %w", pattern, err))
	case pattern == "":
		s.faults = errors.Join(s.faults, errors.New(`topic: Matching(""): give a pattern, ".*" for all topics`))
	case s.pattern != "":
		pattern = "(?:" + s.pattern + ")|(?:" + pattern + ")"
	}
	s.pattern = pattern
	return s
}

// Uncommitted lets the consumer see records of open and of aborted transactions.
func (s Subscription) Uncommitted() Subscription {
	s.uncommitted = true
	return s
}

// OnExpired has f called for every record that the consumer passes over since it has
// expired, by the goroutine that reads: see Topic.OnExpired.
func (s Subscription) OnExpired(f func(topic string, partition int, offset int64)) Subscription {
	s.onExpired = f
	return s
}

// timing returns what a consumer looks at in a topic.
func (s Subscription) timing(n GroupNode, topic string) timing {
	for name, spec := range n.Topics() {
		if name != topic {
			continue
		}
		var onExpired func(int, int64)
		if s.onExpired != nil {
			onExpired = func(partition int, offset int64) { s.onExpired(topic, partition, offset) }
		}
		return timingOf(n, topic, spec, onExpired)
	}
	return timing{}
}

func (s Subscription) err() error {
	if s.faults == nil && len(s.names) == 0 && s.pattern == "" {
		return errors.New("topic: a subscription without topics: give Topics or Matching")
	}
	return s.faults
}

// RawRecord is a record of some topic, with key and value as they are stored.
type RawRecord struct {
	Topic string
	Record[[]byte, []byte]
}

// Decoder returns a function that makes typed records of raw ones. It fails for those
// of other topics. The records share nothing with the raw ones but their headers.
func (t Topic[K, V]) Decoder() (func(RawRecord) (Record[K, V], error), error) {
	keys, values, err := t.Codecs(nil)
	if err := errors.Join(t.Err(), err); err != nil {
		return nil, err
	}
	d := &decoder[K, V]{topic: t.Name(), keys: keys, values: values}
	return func(raw RawRecord) (Record[K, V], error) {
		if raw.Topic != t.Name() {
			return Record[K, V]{}, fmt.Errorf("topic: a record of %q is none of %q", raw.Topic, t.Name())
		}
		return d.typed(raw.Record)
	}, nil
}

// RawConsumer reads several topics, by name or by pattern, as a member of a group. It
// is used as a Consumer is, see there, with partitions named by topic and number.
type RawConsumer struct {
	c      *consumer
	source source[RawRecord]
}

// NewRawConsumer returns a consumer of the topics of s on n in a group. Close it when
// done with it.
func NewRawConsumer(n GroupNode, s Subscription, groupName string, o ConsumerOptions) (*RawConsumer, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	iso := log.ReadCommitted
	if s.uncommitted {
		iso = log.ReadUncommitted
	}
	c, err := newConsumer(n, groupName, group.Subscription{Topics: s.names, Pattern: s.pattern}, func(string) log.Isolation { return iso }, o)
	if err != nil {
		return nil, err
	}
	c.timing = func(topic string) timing { return s.timing(n, topic) }
	d := &decoder[[]byte, []byte]{keys: codec.Bytes, values: codec.Bytes}
	decode := func(it *log.RecordIterator, cl *claim) (RawRecord, error) {
		r, err := d.record(it, int(cl.name.Partition))
		r.NotBefore, r.Expires = cl.holdback.explicit(r.Headers)
		return RawRecord{Topic: cl.name.Topic, Record: r}, err
	}
	return &RawConsumer{c: c, source: source[RawRecord]{c: c, decode: decode}}, nil
}

// Records iterates: see Consumer.Records.
func (c *RawConsumer) Records(ctx context.Context) iter.Seq2[RawRecord, error] {
	return c.source.records(ctx)
}

// Batches iterates over what Poll returns: see Consumer.Batches.
func (c *RawConsumer) Batches(ctx context.Context) iter.Seq2[[]RawRecord, error] {
	return c.source.batches(ctx)
}

// Poll returns the next records of one partition: see Consumer.Poll.
func (c *RawConsumer) Poll(ctx context.Context) ([]RawRecord, error) { return c.source.poll(ctx) }

// Commit commits behind all that was handed out: see Consumer.Commit.
func (c *RawConsumer) Commit(ctx context.Context) error { return c.c.commitHanded(ctx) }

// CommitAt commits positions that the program names: see Consumer.CommitAt.
func (c *RawConsumer) CommitAt(ctx context.Context, at ...Committed) error {
	return c.c.commitAt(ctx, at)
}

// Committed returns the position of the group in a partition, if it has one.
func (c *RawConsumer) Committed(tp TopicPartition) (at Committed, ok bool) {
	return c.c.committed(tp.Topic, int(tp.Partition))
}

// Seek makes all assigned partitions go on at pos.
func (c *RawConsumer) Seek(pos Position) error {
	return c.c.seek(pos, func(*claim) bool { return true })
}

// SeekPartition makes one partition go on at pos. One that is not assigned is
// ErrNotAssigned.
func (c *RawConsumer) SeekPartition(tp TopicPartition, pos Position) error {
	return c.c.seekPartition(tp.Topic, int(tp.Partition), pos)
}

// Pause stops the delivery of assigned partitions, of all where none is named.
func (c *RawConsumer) Pause(partitions ...TopicPartition) { c.c.pause(true, anyName(partitions)) }

// Resume ends a Pause, of all partitions where none is named.
func (c *RawConsumer) Resume(partitions ...TopicPartition) { c.c.pause(false, anyName(partitions)) }

func anyName(names []TopicPartition) func(*claim) bool {
	return func(cl *claim) bool { return len(names) == 0 || slices.Contains(names, cl.name) }
}

// Assigned returns the partitions that the consumer reads at present, ascending.
func (c *RawConsumer) Assigned() []TopicPartition { return c.c.assigned() }

// Lag walks the assigned partitions with the number of offsets between what is
// finished and what can be seen.
func (c *RawConsumer) Lag() iter.Seq2[TopicPartition, int64] { return c.c.lag() }

// Close leaves the group: see Consumer.Close.
func (c *RawConsumer) Close() error { return c.c.close() }
