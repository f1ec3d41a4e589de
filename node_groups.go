package thalweg

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// Consumer returns a consumer of t in a group, with the settings of Options.Consumer.
// It creates the topic where it does not exist. Whoever asked for it closes it;
// Node.Close closes those that are left.
func (n *Node) Consumer[K, V any](t topic.Topic[K, V], groupName string) (*topic.Consumer[K, V], error) {
	return n.ConsumerWith(t, groupName, n.options.Consumer)
}

// ConsumerWith is Consumer with settings of its own.
func (n *Node) ConsumerWith[K, V any](t topic.Topic[K, V], groupName string, o topic.ConsumerOptions) (*topic.Consumer[K, V], error) {
	return consume(n, o, func(h *consumerHost, o topic.ConsumerOptions) (*topic.Consumer[K, V], error) {
		return topic.NewConsumer(h, t, groupName, o)
	})
}

// Subscribe returns a consumer of several topics, by name or by pattern, in a group:
//
//	c, err := node.Subscribe(topic.Topics("clicks", "views"), "audit")
//	c, err := node.Subscribe(topic.Matching("orders-.*"), "audit")
//
// It yields keys and values as they are stored; topic.Topic.Decoder makes typed
// records of them. Topics that do not exist are read once they do.
func (n *Node) Subscribe(s topic.Subscription, groupName string) (*topic.RawConsumer, error) {
	return n.SubscribeWith(s, groupName, n.options.Consumer)
}

// SubscribeWith is Subscribe with settings of its own.
func (n *Node) SubscribeWith(s topic.Subscription, groupName string, o topic.ConsumerOptions) (*topic.RawConsumer, error) {
	return consume(n, o, func(h *consumerHost, o topic.ConsumerOptions) (*topic.RawConsumer, error) {
		return topic.NewRawConsumer(h, s, groupName, o)
	})
}

// consume makes a consumer that Close knows.
func consume[C interface{ Close() error }](n *Node, o topic.ConsumerOptions, make func(*consumerHost, topic.ConsumerOptions) (C, error)) (C, error) {
	var none C
	leave, err := n.enter()
	if err != nil {
		return none, err
	}
	defer leave()
	if o.Logger == nil {
		o.Logger = n.logger
	}
	host := &consumerHost{topicHost: topicHost{n}}
	c, err := make(host, o)
	if err != nil {
		return none, err
	}
	host.close = c.Close
	n.mu.Lock()
	n.consumers[host] = struct{}{}
	n.mu.Unlock()
	return c, nil
}

// Groups walks the consumer groups by name.
func (n *Node) Groups() iter.Seq[topic.GroupInfo] {
	return func(yield func(topic.GroupInfo) bool) {
		leave, err := n.enter()
		if err != nil {
			return
		}
		names := n.plane.Groups()
		leave()
		for _, name := range names {
			info, err := n.Group(name)
			if err == nil && !yield(info) { // one that is gone meanwhile is no longer a group
				return
			}
		}
	}
}

// Group describes a consumer group: its members, what each reads, its positions and
// how far they are behind. There is topic.ErrUnknownGroup.
func (n *Node) Group(name string) (topic.GroupInfo, error) {
	leave, err := n.enter()
	if err != nil {
		return topic.GroupInfo{}, err
	}
	defer leave()
	return topic.DescribeGroup(&consumerHost{topicHost: topicHost{n}}, name)
}

// ResetGroup makes a group without consumers go on at to in all partitions of the
// topics, or, where none is given, in all it has positions in. One with consumers is
// topic.ErrGroupInUse.
func (n *Node) ResetGroup(ctx context.Context, name string, to topic.Position, topics ...Named) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	var names []string
	for _, t := range topics {
		if err := t.Err(); err != nil {
			return fmt.Errorf("thalweg: reset group %q: %w", name, err)
		}
		names = append(names, t.Name())
	}
	return topic.ResetGroup(ctx, &consumerHost{topicHost: topicHost{n}}, name, to, names...)
}

// DeleteGroup forgets a group without consumers, with its positions. One with
// consumers is topic.ErrGroupInUse.
func (n *Node) DeleteGroup(ctx context.Context, name string) error {
	leave, err := n.enter()
	if err != nil {
		return err
	}
	defer leave()
	return topic.DeleteGroup(ctx, &consumerHost{topicHost: topicHost{n}}, name)
}

// consumerHost is the topicHost of one consumer: it hears when that consumer is
// closed, so that the node need not keep it.
type consumerHost struct {
	topicHost
	close func() error // the consumer's, set once it is made
}

var _ topic.GroupNode = (*consumerHost)(nil)

func (h *consumerHost) Topics() iter.Seq2[string, log.TopicSpec] { return h.plane.Log().Topics() }

func (h *consumerHost) ProposeGroup(ctx context.Context, c group.Command) error {
	err := h.plane.ProposeGroup(ctx, c)
	if errors.Is(err, checkpoint.ErrUnknown) {
		return fmt.Errorf("%w: %w", topic.ErrUnknown, err)
	}
	return err
}

func (h *consumerHost) Group(name string, f func(*group.Group)) { h.plane.Group(name, f) }

func (h *consumerHost) GroupChanged(name string) <-chan struct{} { return h.plane.GroupChanged(name) }

func (h *consumerHost) ConsumerClosed() {
	h.mu.Lock()
	delete(h.consumers, h)
	h.mu.Unlock()
}
