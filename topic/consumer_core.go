package topic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// consumer is a member of a group: what all consumers have in common, without the
// types of their records.
//
// One goroutine reads: it takes batches, follows the group and calls the program's
// functions. Another, run, looks after the group. What a member has to do is worked
// out by package group.
type consumer struct {
	node         GroupNode
	group        string
	subscription group.Subscription
	isolation    func(topic string) log.Isolation
	timing       func(topic string) timing
	opts         ConsumerOptions

	wake      chan struct{} // holds one signal for the goroutine that reads
	attention atomic.Bool   // it has to look at the group, seeks or pauses before it goes on
	polling   atomic.Bool   // there is such a goroutine
	waiting   atomic.Bool   // it waits for records
	polls     atomic.Int64  // how often it has come
	manual    atomic.Bool   // it commits in transactions, and nothing by itself

	// Of the goroutine that reads.
	reading []*claim // not paused
	turn    int      // whose batch was taken last
	current *claim   // whose records are in hand, or were left
	handed  int64    // offset behind the last record in hand; 0 for none
	batch   *log.Batch
	records log.RecordIterator // of batch; Poll leaves it where it stopped

	// Of run.
	lastPlan  map[string]int32 // partitions that the target of lastEpoch was made for
	lastEpoch int64
	patterns  map[string]*regexp.Regexp

	commitMu sync.Mutex // one commit at a time; taken before mu

	mu      sync.Mutex // guards the fields below and those of claims that say so
	claims  map[TopicPartition]*claim
	member  group.MemberID
	joined  bool
	expired group.MemberID // the membership that run has ended
	closed  bool           // nothing more is delivered
	left    bool           // nothing more is committed
	failed  error          // why nothing more is delivered; set once
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	closing  sync.Once
	closeErr error // what Close returns; set under closing
}

func newConsumer(n GroupNode, name string, s group.Subscription, isolation func(string) log.Isolation, o ConsumerOptions) (*consumer, error) {
	if err := checkGroup(name); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &consumer{
		node: n, group: name, subscription: s, isolation: isolation, opts: o,
		wake: make(chan struct{}, 1), claims: map[TopicPartition]*claim{},
	}
	c.attention.Store(true)
	return c, nil
}

// checkGroup refuses names that could not be told apart or shown.
func checkGroup(name string) error {
	if name == "" || len(name) > 255 || !utf8.ValidString(name) {
		return fmt.Errorf("topic: group name %q: give 1 to 255 bytes of text", name)
	}
	return nil
}

// notice makes the goroutine that reads look.
func (c *consumer) notice() {
	c.attention.Store(true)
	c.signal()
}

// signal wakes it. It never blocks.
func (c *consumer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fail keeps the first failure, which the next call returns.
func (c *consumer) fail(err error) {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = err
	}
	c.mu.Unlock()
	c.notice()
}

// enter begins reading, which one goroutine may do at a time.
func (c *consumer) enter() (leave func(), err error) {
	if !c.polling.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("topic: group %q: another goroutine reads from this consumer: give each its own", c.group)
	}
	return func() {
		c.polling.Store(false)
		if c.isClosed() {
			c.letGo()
		}
	}, nil
}

func (c *consumer) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// next returns the next batch of a partition that the consumer owns, and waits for
// one. It may be used until the next call.
func (c *consumer) next(ctx context.Context) (*log.Batch, *claim, error) {
	c.polls.Add(1)
	c.settle()
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if c.attention.CompareAndSwap(true, false) {
			if err := c.attend(ctx); err != nil {
				c.attention.Store(true)
				return nil, nil, err
			}
			continue
		}
		b, cl, err := c.take()
		if b != nil && c.opts.Delivery == AtMostOnce {
			if err = c.commitAhead(ctx, cl, b.Last+1); err != nil {
				c.settle()
			}
			if errors.Is(err, ErrStale) {
				continue // the records are somebody else's
			}
		}
		if err != nil {
			return nil, nil, err
		}
		if b != nil {
			c.polls.Add(1) // its time begins now, not when it was asked for
			return b, cl, nil
		}
		c.waiting.Store(true)
		c.await(ctx)
		c.waiting.Store(false)
	}
}

// await returns when there may be something to do.
func (c *consumer) await(ctx context.Context) {
	first := &holdback{}
	for _, cl := range c.reading {
		if h := &cl.holdback; h.until != 0 && (first.until == 0 || h.until < first.until) {
			first = h
		}
	}
	var due <-chan time.Time // never, where nothing is held back
	if first.until != 0 {
		timer := time.NewTimer(first.left())
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-c.wake:
	case <-due:
	case <-ctx.Done():
	}
}

// take returns a batch that is there, or nil.
func (c *consumer) take() (*log.Batch, *claim, error) {
	for range c.reading {
		c.turn = (c.turn + 1) % len(c.reading)
		cl := c.reading[c.turn]
		if cl.holdback.holds(cl.reader) {
			continue
		}
		b, err := cl.reader.Next()
		if err == nil {
			if b, err = cl.holdback.take(cl.reader, b); b == nil && err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			c.current = cl
			return b, cl, nil
		case err == io.EOF:
			cl.done.Store(int64(cl.reader.Offset())) // behind markers too
		case errors.Is(err, log.ErrOffsetOutOfRange):
			if err := c.move(cl, cl.at(cl.reader.Offset(), ""), true); err != nil {
				return nil, nil, err
			}
			c.signal() // look again
		case errors.Is(err, log.ErrClosed) && c.isDeleted(cl):
			c.reading = slices.DeleteFunc(c.reading, func(r *claim) bool { return r == cl })
			return nil, nil, nil // the group will know
		default:
			return nil, nil, fmt.Errorf("topic: read %s: %w", cl.name, err)
		}
	}
	return nil, nil, nil
}

// commitAhead commits the position behind a batch that is about to be handed out.
func (c *consumer) commitAhead(ctx context.Context, cl *claim, end log.Offset) error {
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	c.mu.Lock()
	committed := cl.committed
	c.mu.Unlock()
	if committed == int64(end) {
		return nil // the rest of a batch that was left
	}
	return c.commit(ctx, []move{{claim: cl, to: cl.at(end, "")}})
}

// settle ends what was in hand: what is finished moves the claim, what was left is
// read again.
func (c *consumer) settle() {
	cl := c.current
	if cl == nil {
		return
	}
	if c.handed > 0 {
		cl.done.Store(c.handed)
	}
	if off := log.Offset(cl.done.Load()); cl.reader.Offset() != off {
		cl.reader.Seek(off)
	}
	c.current, c.batch, c.handed = nil, nil, 0
}

// attend does what the group and the program ask of the goroutine that reads. Nothing
// is in hand.
func (c *consumer) attend(ctx context.Context) error {
	for {
		c.mu.Lock()
		closed, failed, joined := c.closed, c.failed, c.joined
		c.mu.Unlock()
		switch {
		case closed:
			return ErrClosed
		case failed != nil:
			return failed
		case !joined:
			if err := c.join(ctx); err != nil {
				return err
			}
		}
		step := c.step()
		if len(step.Lost) > 0 {
			c.lose(ctx, step.Lost)
		}
		if step.Over {
			c.mu.Lock()
			c.joined = false
			c.mu.Unlock()
			continue
		}
		if err := c.release(ctx, step); err != nil {
			return err
		}
		if err := c.claim(ctx, step.Granted); err != nil {
			return err
		}
		return c.arrange()
	}
}

// step asks the group what is to be done.
func (c *consumer) step() (s group.Step) {
	c.mu.Lock()
	member := c.member
	held := make(map[group.Partition]int64, len(c.claims))
	for _, cl := range c.claims {
		held[cl.grant.Partition] = cl.grant.Epoch
	}
	c.mu.Unlock()
	c.node.Group(c.group, func(g *group.Group) { s = group.Reconcile(g, member, held) })
	return s
}

func partitionsOf(grants []group.Grant) []TopicPartition {
	tps := make([]TopicPartition, len(grants))
	for i, g := range grants {
		tps[i] = logPartition(g.Partition)
	}
	return tps
}

// isDeleted tells whether a claim's topic was deleted.
func (c *consumer) isDeleted(cl *claim) bool {
	if _, err := c.node.Partition(cl.name); !errors.Is(err, log.ErrUnknownTopic) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.deleted = true
	return true
}

// lose drops what is somebody else's already, and tells the program.
func (c *consumer) lose(ctx context.Context, grants []group.Grant) {
	lost := partitionsOf(grants)
	c.drop(lost)
	c.opts.Logger.Warn("partitions lost", "group", c.group, "partitions", fmt.Sprint(lost))
	if c.opts.OnLost != nil {
		c.opts.OnLost(ctx, lost)
	}
}

// release gives up what step asks for, after the program has had its say.
func (c *consumer) release(ctx context.Context, step group.Step) error {
	give := slices.Concat(step.Revoked, step.Unused)
	if len(give) == 0 {
		return nil
	}
	revoked := partitionsOf(step.Revoked)
	if len(revoked) > 0 {
		if err := c.revoke(ctx, revoked); err != nil {
			return err
		}
		c.drop(revoked)
	}
	slices.SortFunc(give, func(a, b group.Grant) int { return a.Partition.Compare(b.Partition) })
	c.mu.Lock()
	member := c.member
	c.mu.Unlock()
	// The partitions are dropped: whatever becomes of ctx, others are to have them.
	err := c.node.ProposeGroup(context.WithoutCancel(ctx), group.Release{Group: c.group, Member: member, Grants: give})
	if err != nil && !errors.Is(err, group.ErrUnknown) {
		return fmt.Errorf("topic: release partitions of group %q: %w", c.group, err)
	}
	return nil
}

// revoke tells the program of partitions that it is to give up, and commits what it
// has finished of them.
func (c *consumer) revoke(ctx context.Context, revoked []TopicPartition) error {
	if c.opts.OnRevoke != nil {
		c.opts.OnRevoke(ctx, revoked)
	}
	if !c.automatic() {
		return nil
	}
	claims := slices.DeleteFunc(c.owned(), func(cl *claim) bool { return !slices.Contains(revoked, cl.name) })
	err := c.commitFinished(context.WithoutCancel(ctx), claims)
	if errors.Is(err, ErrStale) {
		return nil // they are gone already; the next look tells
	}
	return err
}

// drop lets go of claims.
func (c *consumer) drop(names []TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if cl := c.claims[name]; cl != nil {
			cl.cancel()
			cl.reader.Close()
			delete(c.claims, name)
		}
	}
	c.reading = slices.DeleteFunc(c.reading, func(cl *claim) bool { return slices.Contains(names, cl.name) })
}

// claim takes up what was granted, from the group's positions on.
func (c *consumer) claim(ctx context.Context, grants []group.Grant) error {
	if len(grants) == 0 {
		return nil
	}
	var assigned []TopicPartition
	var fresh []*claim // the group has no position there yet
	for _, grant := range grants {
		cl, err := c.open(grant)
		if errors.Is(err, log.ErrUnknownTopic) {
			continue // it is being deleted, and the group will know
		}
		if err != nil {
			return err
		}
		assigned = append(assigned, cl.name)
		if cl.committed < 0 && cl.err == nil {
			fresh = append(fresh, cl)
		}
		c.mu.Lock()
		c.claims[cl.name] = cl
		c.mu.Unlock()
	}
	if c.opts.OnAssign != nil && len(assigned) > 0 {
		c.opts.OnAssign(ctx, assigned)
	}
	if c.opts.CommitInterval < 0 || len(fresh) == 0 {
		return nil
	}
	// Where the group begins is its position from now on: a crash before the first
	// record must not make it begin elsewhere.
	if err := c.commitFinished(ctx, fresh); !errors.Is(err, ErrStale) {
		return err
	}
	return nil
}

// open makes a claim of a grant, placed where the group's position says.
func (c *consumer) open(grant group.Grant) (*claim, error) {
	name := logPartition(grant.Partition)
	lp, err := c.node.Partition(name)
	if err != nil {
		return nil, fmt.Errorf("topic: open %s: %w", name, err)
	}
	cl := &claim{name: name, grant: grant, partition: lp, isolation: c.isolation(name.Topic), committed: -1, seek: noSeek}
	cl.holdback.timing = c.timing(name.Topic)
	cl.reader = lp.Reader(0, cl.isolation)
	cl.cancel = lp.OnAdvance(c.signal)
	// The position comes after the grant: nobody else can move it any more.
	at, known := c.groupPosition(grant.Partition)
	if known {
		cl.committed = at.Offset
	}
	cl.err = c.move(cl, at, known)
	if !known && c.opts.Reset.kind == positionStart {
		cl.committed = cl.done.Load() // the beginning needs no commit to stay one
	}
	return cl, nil
}

func (c *consumer) groupPosition(p group.Partition) (at group.Position, known bool) {
	c.node.Group(c.group, func(g *group.Group) {
		if g != nil {
			at, known = g.Position(p)
		}
	})
	return at, known
}

// move puts a claim where the group's position says, or where a reset leads to.
func (c *consumer) move(cl *claim, at group.Position, known bool) error {
	off, reset, err := c.opts.place(c.group, cl.partition, cl.isolation, at, known)
	if err != nil {
		return err
	}
	cl.reader.Seek(off)
	cl.done.Store(int64(off))
	if reset != nil {
		c.opts.Logger.Info("position reset", "group", c.group, "partition", cl.name.String(), "reason", reset.Reason.String(),
			"from", reset.From, "to", reset.To, "skipped", reset.Skipped)
		if c.opts.OnReset != nil {
			c.opts.OnReset(*reset)
		}
	}
	return nil
}

// arrange follows the program's seeks and pauses.
func (c *consumer) arrange() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = c.reading[:0]
	var failed error
	for _, cl := range c.ownedLocked() {
		if cl.seek != noSeek {
			cl.reader.Seek(cl.seek)
			cl.done.Store(int64(cl.seek))
			cl.seek, cl.err = noSeek, nil
		}
		switch {
		case cl.err != nil:
			failed = cl.err
		case !cl.paused && !cl.deleted:
			c.reading = append(c.reading, cl)
		}
	}
	return failed
}

// letGo closes the readers of a consumer that is closed, unless a goroutine still
// reads, which does so then.
func (c *consumer) letGo() {
	if !c.polling.CompareAndSwap(false, true) {
		return
	}
	defer c.polling.Store(false)
	for _, cl := range c.owned() {
		cl.cancel()
		cl.reader.Close()
	}
	c.reading = nil
}

// close leaves the group after a last commit. A static member only goes away.
func (c *consumer) close() error {
	c.closing.Do(func() {
		c.closeErr = c.leave()
		c.node.ConsumerClosed()
	})
	return c.closeErr
}

func (c *consumer) leave() error {
	c.mu.Lock()
	c.closed = true
	member, failed := c.member, c.failed
	joined := c.joined && c.expired != member
	held := make([]TopicPartition, 0, len(c.claims))
	for _, cl := range c.ownedLocked() {
		held = append(held, cl.name)
	}
	cancel := c.cancel
	c.mu.Unlock()
	c.notice()
	if cancel != nil {
		cancel()
		c.wg.Wait()
	}
	var err error
	ctx := context.Background()
	if !joined && len(held) > 0 && c.opts.OnLost != nil {
		c.opts.OnLost(ctx, held) // it was expired, and has not been told
	}
	if joined {
		if len(held) > 0 {
			err = c.revoke(ctx, held)
		}
		var step group.Command = group.Leave{Group: c.group, Member: member}
		if c.opts.StaticID != "" {
			step = group.Away{Group: c.group, Member: member}
		}
		if e := c.node.ProposeGroup(ctx, step); e != nil && !errors.Is(e, group.ErrNotMember) && !errors.Is(e, group.ErrUnknown) {
			err = errors.Join(err, fmt.Errorf("topic: leave group %q: %w", c.group, e))
		}
	}
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	c.letGo()
	return errors.Join(err, failed)
}
