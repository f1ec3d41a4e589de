package thalweg_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var crowdSeed = flag.Uint64("crowd.seed", 0, "seed of the first history of consumers; 0 picks one")

// crowd is a group of consumers under test, and what they were given.
type crowd struct {
	t    *testing.T
	n    *thalweg.Node
	seed uint64

	mu        sync.Mutex
	faults    []string
	owners    map[topic.TopicPartition]*one
	changes   map[topic.TopicPartition]int // how often a partition was assigned
	delivered map[topic.TopicPartition]map[int64]int
	calm      bool
}

// one is a consumer and the program that reads from it.
type one struct {
	crowd  *crowd
	c      *topic.RawConsumer
	random *rand.Rand
	cancel context.CancelFunc
	wg     sync.WaitGroup
	late   bool // it takes longer than it may: what it has may be another's. Guarded by crowd.mu
}

const crowdPoll = 2 * time.Second

func (w *crowd) fault(format string, args ...any) {
	if len(w.faults) < 5 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

func (w *crowd) join(random *rand.Rand) *one {
	o := &one{crowd: w, random: rand.New(rand.NewPCG(random.Uint64(), 0))}
	options := topic.ConsumerOptions{
		PollTimeout:    crowdPoll,
		SessionTimeout: time.Second,
		CommitInterval: 100 * time.Millisecond,
		MaxPollRecords: random.IntN(4),
		OnAssign:       o.assigned,
		OnRevoke:       func(_ context.Context, p []topic.TopicPartition) { o.gone(p, true) },
		OnLost:         func(_ context.Context, p []topic.TopicPartition) { o.gone(p, false) },
	}
	if w.seed%2 == 0 {
		options.Assignor = topic.Range
	}
	c, err := w.n.SubscribeWith(topic.Matching("t[0-9]"), "g", options)
	require.NoError(w.t, err)
	o.c = c
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	if random.IntN(2) == 0 {
		o.wg.Go(func() { o.iterate(ctx) })
	} else {
		o.wg.Go(func() { o.poll(ctx) })
	}
	return o
}

func (o *one) assigned(_ context.Context, partitions []topic.TopicPartition) {
	w := o.crowd
	w.mu.Lock()
	defer w.mu.Unlock()
	o.late = false
	for _, p := range partitions {
		if other := w.owners[p]; other != nil && other != o && !other.late {
			w.fault("%v is assigned while another consumer has it", p)
		}
		w.owners[p] = o
		w.changes[p]++
	}
}

func (o *one) gone(partitions []topic.TopicPartition, asked bool) {
	w := o.crowd
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		if w.owners[p] == o {
			delete(w.owners, p)
		} else if asked {
			w.fault("%v is revoked from a consumer that does not have it", p)
		}
	}
}

func (o *one) see(r topic.RawRecord) {
	w := o.crowd
	w.mu.Lock()
	defer w.mu.Unlock()
	p := topic.TopicPartition{Topic: r.Topic, Partition: topic.PartitionID(r.Partition)}
	if w.owners[p] != o && !o.late {
		w.fault("%v is read by a consumer that does not have it", p)
	}
	if w.delivered[p] == nil {
		w.delivered[p] = map[int64]int{}
	}
	w.delivered[p][r.Offset]++
}

// work is what the program does with a record: most of the time little, sometimes more
// than it has time for.
func (o *one) work(ctx context.Context) {
	w := o.crowd
	d := time.Duration(o.random.IntN(20)) * time.Millisecond
	w.mu.Lock()
	if o.random.IntN(60) == 0 && !w.calm {
		d = time.Duration(o.random.Int64N(int64(2 * crowdPoll)))
		o.late = d >= crowdPoll
	}
	w.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (o *one) iterate(ctx context.Context) {
	for r, err := range o.c.Records(ctx) {
		if err != nil {
			o.ended(ctx, err)
			return
		}
		o.see(r)
		o.work(ctx)
	}
}

func (o *one) poll(ctx context.Context) {
	for {
		batch, err := o.c.Poll(ctx)
		if err != nil {
			o.ended(ctx, err)
			return
		}
		for _, r := range batch {
			o.see(r)
		}
		o.work(ctx)
	}
}

func (o *one) ended(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, topic.ErrClosed) {
		o.crowd.mu.Lock()
		o.crowd.fault("a consumer ended with %v", err)
		o.crowd.mu.Unlock()
	}
}

// leave ends a consumer in order, or leaves it alone until it is expired.
func (o *one) leave(order bool) {
	o.cancel()
	o.wg.Wait()
	o.crowd.mu.Lock()
	o.late = o.late || !order
	o.crowd.mu.Unlock()
	if order {
		require.NoError(o.crowd.t, o.c.Close())
	}
}

// crowdHistory runs one history and returns what was wrong.
func crowdHistory(t *testing.T, seed uint64) (faults []string) {
	random := rand.New(rand.NewPCG(seed, 7))
	n, err := thalweg.Options{SyncInterval: -1, Log: log.Options{SegmentBytes: 64 << 10, MaxBatchBytes: 32 << 10}}.Open("")
	require.NoError(t, err)
	w := &crowd{
		t: t, n: n, seed: seed,
		owners: map[topic.TopicPartition]*one{}, changes: map[topic.TopicPartition]int{}, delivered: map[topic.TopicPartition]map[int64]int{},
	}
	topics := 0
	var sends []func(count int)
	addTopic := func() {
		top := topic.New[string, int](fmt.Sprintf("t%d", topics)).Partitions(1 + random.IntN(3))
		topics++
		p, err := n.Producer(top)
		require.NoError(t, err)
		sends = append(sends, func(count int) {
			for range count {
				require.NoError(t, p.Send(context.Background(), strconv.Itoa(random.IntN(1000)), 0))
			}
		})
	}
	addTopic()
	live := []*one{w.join(random)}
	var left []*one
	for range 40 {
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		sends[random.IntN(len(sends))](random.IntN(10))
		switch k := random.IntN(10); {
		case k < 3 && len(live) < 5:
			live = append(live, w.join(random))
		case k < 6 && len(live) > 1:
			i := random.IntN(len(live))
			o := live[i]
			live = append(live[:i:i], live[i+1:]...)
			o.leave(k != 5)
			left = append(left, o)
		case k == 6 && topics < 3:
			addTopic()
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	if len(live) == 0 {
		live = append(live, w.join(random))
	}
	// The bound: the slowest body of a loop, the timeout of those who were left alone
	// and a quarter, and the rest of what is to be read.
	time.Sleep(2*crowdPoll + crowdPoll*5/4 + time.Second)
	synctest.Wait()
	w.mu.Lock()
	if info, err := n.Group("g"); err != nil || info.State != topic.GroupStable || len(info.Members) != len(live) {
		w.fault("the group is %+v, %v", info, err)
	}
	w.mu.Unlock()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	w.mu.Lock()
	for name, spec := range n.Log().Topics() {
		if name[0] != 't' {
			continue
		}
		for i := range spec.Partitions {
			p := topic.TopicPartition{Topic: name, Partition: topic.PartitionID(i)}
			lp, err := n.Log().Partition(p)
			require.NoError(t, err)
			if w.owners[p] == nil {
				w.fault("%v is read by nobody", p)
			}
			for off := range int64(lp.End().Offset) {
				switch times := w.delivered[p][off]; {
				case times == 0:
					w.fault("record %d of %v was skipped", off, p)
				case times > w.changes[p]:
					w.fault("record %d of %v was delivered %d times by %d owners", off, p, times, w.changes[p])
				}
			}
		}
	}
	w.mu.Unlock()
	for _, o := range live {
		o.leave(true)
	}
	for _, o := range left {
		require.NoError(t, o.c.Close())
	}
	require.NoError(t, n.Close())
	return w.faults
}

// Real consumers join, leave, are left alone, are slow and meet new topics, in virtual
// time over a node in memory: no partition has two owners who both may read it, every
// one is owned within a bound after the last change, no record is skipped, and none is
// delivered more than once by each owner.
func TestCrowdsOfConsumers(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 6
	}
	first := *crowdSeed
	if first == 0 {
		first = rand.Uint64() >> 1
	}
	t.Logf("%d histories from seed %d on (-crowd.seed)", histories, first)
	seeds := []uint64{4667672975030803584} // its offsets add up so that progress looked like none
	for i := range histories {
		seeds = append(seeds, first+uint64(i))
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			require.Empty(t, crowdHistory(t, seed), "seed %d", seed)
		})
	}
}
