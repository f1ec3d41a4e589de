package topic

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/queue"
	"github.com/thalweg/thalweg/log"
)

// queueCore is a queue that is open: what its handles share. It brings those who
// receive together with the partitions that have something to hand out.
type queueCore struct {
	queues  *Queues
	name    string
	topic   string
	opts    QueueOptions // resolved
	rules   queue.Rules
	timed   timing
	handles int // guarded by Queues.mu

	cancel context.CancelFunc // ends the goroutines counted by wg
	wg     sync.WaitGroup

	// mu guards the fields below; a leaf. One of waiting and ready is empty, apart
	// from partitions that were just woken.
	mu      sync.Mutex
	parts   []*queuePartition // by number; more come with those of the topic
	waiting []*receiver       // the longest waiting first
	ready   []*queuePartition // that have a record for whoever comes
	closed  bool
}

// handout is a record that was delivered, copied from the log.
type handout struct {
	partition  *queuePartition
	offset     int64
	count      int64
	until      int64 // Unix ms
	time       int64 // Unix ms
	key, value []byte
	headers    []Header
}

// receiver is somebody who waits for a record. given and gone are guarded by
// queueCore.mu.
type receiver struct {
	done  chan struct{} // closed when given or err is set
	given *handout
	err   error
	gone  bool // it does not wait any more
}

// receive waits for a record until ctx ends or closed is closed.
func (c *queueCore) receive(ctx context.Context, closed <-chan struct{}) (*handout, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-closed:
		return nil, ErrQueueClosed
	default:
	}
	r := &receiver{done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrQueueClosed
	}
	c.waiting = append(c.waiting, r)
	woken := c.popReadyLocked()
	c.mu.Unlock()
	woken.wakeUp()

	var err error
	select {
	case <-r.done:
		return r.given, r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-closed:
		err = ErrQueueClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.given != nil {
		r.given.partition.takeBack(r.given)
	}
	r.gone = true
	c.waiting = slices.DeleteFunc(c.waiting, func(o *receiver) bool { return o == r })
	return nil, err
}

// popReadyLocked takes the first partition out of ready; nil when there is none.
func (c *queueCore) popReadyLocked() *queuePartition {
	if len(c.ready) == 0 {
		return nil
	}
	p := c.ready[0]
	c.ready = c.ready[1:]
	p.isReady = false
	return p
}

// take returns who is to get a record of p. When nobody waits, p is woken once
// somebody does.
func (c *queueCore) take(p *queuePartition) *receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		r := c.waiting[0]
		c.waiting = c.waiting[1:]
		return r
	}
	if !p.isReady && !c.closed {
		p.isReady = true
		c.ready = append(c.ready, p)
	}
	return nil
}

// pass says that p has nothing to hand out: who waits is left to another.
func (c *queueCore) pass(p *queuePartition) {
	c.mu.Lock()
	if p.isReady {
		c.ready = slices.DeleteFunc(c.ready, func(o *queuePartition) bool { return o == p })
		p.isReady = false
	}
	var woken *queuePartition
	if len(c.waiting) > 0 {
		woken = c.popReadyLocked()
	}
	c.mu.Unlock()
	woken.wakeUp()
}

// give hands g to r, or an error. It returns false when r does not wait any more.
func (c *queueCore) give(r *receiver, g *handout, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.gone {
		return false
	}
	r.given, r.err = g, err
	close(r.done)
	return true
}

// now is the node's clock in Unix ms.
func (c *queueCore) now() int64 { return c.queues.opts.Now().UnixMilli() }

// status asks the partitions.
func (c *queueCore) status(ctx context.Context) (QueueStatus, error) {
	s := QueueStatus{Name: c.name, Topic: c.topic}
	for _, p := range c.partitions() {
		var ps QueuePartitionStatus
		if err := p.answer(ctx, answer{kind: answerStatus, status: &ps}); err != nil {
			return QueueStatus{}, err
		}
		s.Partitions = append(s.Partitions, ps)
	}
	return s, nil
}

// openQueue opens the state of a queue and starts its partitions.
func openQueue(qs *Queues, name, topicName string, o QueueOptions, records, states []*log.Partition, timed timing) (*queueCore, error) {
	c := &queueCore{queues: qs, name: name, topic: topicName, opts: o, rules: o.rules(), timed: timed}
	for i := range records {
		from := o.From
		if i > 0 && c.parts[0].existed {
			from = Start() // the partition was added to the topic: nothing of it is to be lost
		}
		p, err := openQueuePartition(c, records[i], states[i], from)
		if err != nil {
			for _, p := range c.parts {
				p.release()
			}
			return nil, fmt.Errorf("topic: open queue %q: %w", name, err)
		}
		c.parts = append(c.parts, p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for _, p := range c.parts {
		c.wg.Go(func() { p.run(ctx) }) // close ends it and waits for it
	}
	c.wg.Go(func() { c.follow(ctx) }) // likewise
	return c, nil
}

// partitions returns those that are served now.
func (c *queueCore) partitions() []*queuePartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.parts)
}

// growRetry is how long a partition waits that could not be taken up.
const growRetry = time.Second

// follow takes up the partitions that are added to the topic.
func (c *queueCore) follow(ctx context.Context) {
	for {
		changed, err := c.grow(ctx)
		var again <-chan time.Time
		if err != nil {
			c.logger().Error("topic: new partitions cannot be served; it is tried again", "error", err)
			again = time.After(growRetry)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// grow begins to serve the partitions that the topic has gained, from their beginning.
// The channel is closed when there may be more.
func (c *queueCore) grow(ctx context.Context) (changed <-chan struct{}, err error) {
	have := len(c.partitions())
	records, changed := growth{c.queues.node, c.topic}.next(have)
	if len(records) == 0 {
		return changed, nil
	}
	states, err := c.queues.states(c.name, have+len(records), c.queues.specOf(c.topic))
	if err != nil {
		return changed, err
	}
	for i := range records {
		p, err := openQueuePartition(c, records[i], states[have+i], Start())
		if err != nil {
			return changed, err
		}
		c.mu.Lock()
		c.parts = append(c.parts, p)
		c.mu.Unlock()
		c.wg.Go(func() { p.run(ctx) }) // close ends it and waits for it
	}
	return changed, nil
}

// close ends the queue. Who receives or waits for an answer gets ErrQueueClosed.
func (c *queueCore) close() {
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	c.closed = true
	waiting := c.waiting
	c.waiting, c.ready = nil, nil
	c.mu.Unlock()
	for _, r := range waiting {
		c.give(r, nil, ErrQueueClosed)
	}
}

// logger adds what the events of a queue have in common.
func (c *queueCore) logger() *slog.Logger {
	return c.queues.opts.Logger.With("queue", c.name, "topic", c.topic)
}

// failure wraps an error of a write that ended an answer or a delivery.
func (c *queueCore) failure(doing string, err error, unknown bool) error {
	if unknown {
		return fmt.Errorf("%w: %s of queue %q: %w", ErrUnknown, doing, c.name, err)
	}
	return fmt.Errorf("topic: %s of queue %q: %w", doing, c.name, err)
}
