package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// orderedJoin is a stream of four partitions, shuffled to the two tasks of a table. A
// record's value is its number, and who it is about.
type orderedJoin struct {
	orders    topic.Topic[string, int]
	customers topic.Topic[string, int]
	out       topic.Topic[string, int]
	disorder  time.Duration
	every     time.Duration // between checkpoints
}

func newOrderedJoin(disorder, every time.Duration) orderedJoin {
	return orderedJoin{topic.New[string, int]("orders").Partitions(4), topic.New[string, int]("customers").Partitions(2),
		topic.New[string, int]("out"), disorder, every}
}

const someCustomers = 100

func customer(v int) string { return fmt.Sprint("c", v%someCustomers) }

// joinedValue is a record with the row that it found, 0 where it found none.
func joinedValue(v, row int) int { return v*1_000_000 + row }

func (j orderedJoin) app() *stream.Topology {
	app := stream.New("ordered").Checkpoint(checkpoint.Every(j.every)).Disorder(j.disorder).IdleAfter(-1).StopAt(topic.End())
	app.Stream(j.orders).KeyBy(customer).
		LeftJoinTable(app.Table(j.customers), func(v, row int, _ bool) int { return joinedValue(v, row) }).
		To(j.out)
	return app
}

// fill sends n orders and as many changes of customers. about says who an order in a
// partition is about.
func (j orderedJoin) fill(t *testing.T, n testNode, records int, about func(partition int) int) {
	t.Helper()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, uint64(j.disorder)))
	jitter := func() time.Duration {
		if j.disorder == 0 {
			return 0
		}
		return time.Duration(rng.Int64N(int64(j.disorder)))
	}
	orders, err := topic.NewProducer(ctx, n, j.orders, topic.ProducerOptions{})
	require.NoError(t, err)
	customers, err := topic.NewProducer(ctx, n, j.customers, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		at := time.UnixMilli(int64(10_000_000 + i))
		id := fmt.Sprint("o", i)
		v := i*someCustomers + about(topic.Partition([]byte(id), 4))
		require.NoError(t, orders.QueueRecord(ctx, topic.Record[string, int]{Key: id, Value: v, Time: at.Add(-jitter())}, nil))
		require.NoError(t, customers.QueueRecord(ctx, topic.Record[string, int]{Key: customer(rng.IntN(someCustomers)), Value: i + 1, Time: at.Add(-jitter())}, nil))
	}
	require.NoError(t, orders.Close())
	require.NoError(t, customers.Close())
}

// want merges, for each of the two tasks, the partition of customers with the orders that
// each partition has for it: the lowest time of those that come next is taken, a customer
// before an order, where a record with a newer one before it in its partition has the time of that.
func (j orderedJoin) want(t *testing.T, n testNode) map[int]bool {
	t.Helper()
	lanes := [2][5][]topic.Record[string, int]{}
	read := func(of topic.Topic[string, int], lane func(r topic.Record[string, int]) *[]topic.Record[string, int]) {
		newest := map[int]time.Time{}
		for r, err := range topic.ReadToEnd(context.Background(), n, of, topic.Start()) {
			require.NoError(t, err)
			if r.Time.Before(newest[r.Partition]) {
				r.Time = newest[r.Partition]
			}
			newest[r.Partition] = r.Time
			to := lane(r)
			*to = append(*to, r)
		}
	}
	read(j.customers, func(r topic.Record[string, int]) *[]topic.Record[string, int] { return &lanes[r.Partition][0] })
	read(j.orders, func(r topic.Record[string, int]) *[]topic.Record[string, int] {
		return &lanes[topic.Partition([]byte(customer(r.Value)), 2)][1+r.Partition]
	})
	found := map[int]bool{}
	for _, task := range lanes {
		rows := map[string]int{}
		for {
			next := -1
			for i, lane := range task {
				if len(lane) > 0 && (next < 0 || lane[0].Time.Before(task[next][0].Time)) {
					next = i
				}
			}
			if next < 0 {
				break
			}
			r := task[next][0]
			if task[next] = task[next][1:]; next == 0 {
				rows[r.Key] = r.Value
			} else {
				found[joinedValue(r.Value, rows[customer(r.Value)])] = true
			}
		}
	}
	return found
}

// run runs the job to its end and returns what it found, and how often lanes were let go.
func (j orderedJoin) run(t *testing.T, n testNode) (found map[int]bool, unordered int64) {
	t.Helper()
	job := n.start(t, j.app())
	require.NoError(t, job.Wait())
	found = map[int]bool{}
	for r, err := range topic.ReadToEnd(context.Background(), n, j.out, topic.Start()) {
		require.NoError(t, err)
		found[r.Value] = true
	}
	for _, task := range job.Status().Tasks {
		unordered += task.Unordered
	}
	return found, unordered
}

// Under load, with senders that wait for credit and receivers that wait for senders, each
// record finds the row that the order of event time says, wherever checkpoints are.
func TestInputsAreReadInOrderUnderLoad(t *testing.T) {
	for _, c := range []struct{ disorder, every time.Duration }{
		{0, time.Hour}, {0, 5 * time.Millisecond}, {0, 20 * time.Millisecond},
		{time.Second, time.Hour}, {time.Second, 5 * time.Millisecond}, {time.Hour, time.Hour}, {time.Hour, 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("disorder %v, checkpoints every %v", c.disorder, c.every), func(t *testing.T) {
			j, n := newOrderedJoin(c.disorder, c.every), openNode(t, vfs.NewMem())
			rng := rand.New(rand.NewPCG(2, 3))
			j.fill(t, n, 20_000, func(int) int { return rng.IntN(someCustomers) })
			want := j.want(t, n)
			require.Len(t, want, 20_000)
			found, unordered := j.run(t, n)
			require.Zero(t, unordered)
			require.Equal(t, want, found)
			require.NoError(t, n.plane.Close())
		})
	}
}

// Where each sender has records for one task only, and time says nothing about the other, no
// order can be kept in bounded memory: the job goes on all the same, and says so.
func TestInputsThatCannotBeReadInOrder(t *testing.T) {
	j, n := newOrderedJoin(24*time.Hour, time.Hour), openNode(t, vfs.NewMem())
	of := [2][]int{} // customers by their task
	for i := range someCustomers {
		task := topic.Partition([]byte(customer(i)), 2)
		of[task] = append(of[task], i)
	}
	j.fill(t, n, 100_000, func(partition int) int { return of[partition%2][0] })
	found, unordered := j.run(t, n)
	require.Len(t, found, 100_000)
	require.Positive(t, unordered)
	require.NoError(t, n.plane.Close())
}

// A source that is read in order of time looks one record ahead. A checkpoint does not take
// the leader epoch of that record for the epoch of the one before it: it would name a position
// that the log does not hold, and a restart would go back to an older checkpoint.
func TestCheckpointInFrontOfTheFirstRecordOfAnEpoch(t *testing.T) {
	left, right, out := topic.New[string, int]("left"), topic.New[string, int]("right"), topic.New[string, int]("out")
	topology := func() *stream.Topology {
		app := stream.New("ahead").IdleAfter(-1)
		app.Stream(left).LeftJoinTable(app.Table(right), func(v, row int, _ bool) int { return v + row }).To(out)
		return app
	}
	fs := vfs.NewMem()
	// run sends v in a leader epoch of its own, and crashes after a checkpoint in front of it
	// and, where behind is set, one behind it.
	run := func(v int, behind bool) {
		n := openNode(t, fs)
		job, err := stream.StartManual(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state"}, topology())
		require.NoError(t, err)
		require.NoError(t, job.Settle())
		require.Zero(t, n.plane.FellBack())
		p, err := topic.NewProducer(t.Context(), n, left, topic.ProducerOptions{})
		require.NoError(t, err)
		_, _, err = p.SendRecord(t.Context(), topic.Record[string, int]{Key: "k", Value: v, Time: time.UnixMilli(int64(v))})
		require.NoError(t, err)
		job.Trigger()
		require.NoError(t, job.Settle())
		if behind {
			job.Trigger()
			require.NoError(t, job.Settle())
		}
		fs = fs.Kill()
		job.Kill()
		_ = p.Close() // of the dead process
		_ = n.plane.Close()
	}
	run(1, true)
	run(2, false)
	run(3, true)
	n := openNode(t, fs)
	defer func() { require.NoError(t, n.plane.Close()) }()
	var got []int
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		got = append(got, r.Value)
	}
	require.Equal(t, []int{1, 2, 3}, got)
}

// Where the records of partitions are not in order, either, what a record finds does not depend on where barriers
// are, nor on crashes behind them.
func TestDisorderAcrossBarriers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(rounds(3, 12)) {
		rng := rand.New(rand.NewPCG(seed+i, 1))
		orders, customers := topic.New[string, int]("orders").Partitions(1+rng.IntN(3)), topic.New[string, int]("customers").Partitions(3)
		out := topic.New[string, string]("out")
		fs := vfs.NewMem()
		n := openNode(t, fs)
		fill := func(to topic.Topic[string, int]) {
			p, err := topic.NewProducer(t.Context(), n, to, topic.ProducerOptions{})
			require.NoError(t, err)
			for c := range 300 {
				_, _, err := p.SendRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint("c", rng.IntN(9)), Value: c, Time: at(int64(c*5 + rng.IntN(100)))})
				require.NoError(t, err)
			}
			require.NoError(t, p.Close())
		}
		fill(orders)
		fill(customers)
		require.NoError(t, n.plane.Close())
		// run runs the job in any order, with so many instants for a barrier or a crash.
		run := func(fs *vfs.Mem, instants int) []string {
			var job *stream.Manual
			n := openNode(t, fs)
			start := func() {
				app := stream.New("disorder").IdleAfter(-1).Tasks(3)
				app.Stream(orders).Filter(func(v int) bool { return v%3 > 0 }).KeyBy(func(v int) string { return fmt.Sprint("c", v%9) }).
					LeftJoinTable(app.Table(customers), func(v, row int, ok bool) string { return fmt.Sprint(v, row, ok) }).To(out)
				var err error
				job, err = stream.StartManual(t.Context(), stream.Env{Plane: n.plane, Backend: state.Memory(), StateDir: "state", Pick: rng.IntN}, app)
				require.NoError(t, err)
			}
			start()
			for range instants {
				for range rng.IntN(40) {
					_, err := job.Step()
					require.NoError(t, err)
				}
				if rng.IntN(4) > 0 {
					job.Trigger()
					continue
				}
				image := fs.Kill()
				job.Kill()
				_ = n.plane.Close()
				fs = image
				n = openNode(t, fs)
				start()
			}
			require.NoError(t, settled(job))
			for _, task := range job.Status().Tasks {
				require.Zero(t, task.Unordered)
			}
			job.Kill()
			results := writtenTexts(t, n, out)
			require.NoError(t, n.plane.Close())
			return results
		}
		require.ElementsMatch(t, run(fs.Kill(), 0), run(fs.Kill(), 20), "seed %d", seed+i)
	}
}

// What is out of order also comes through a task that takes records as they come to one that reads in order.
func TestDisorderThroughAnotherShuffle(t *testing.T) {
	in, rows, out := topic.New[string, int]("in"), topic.New[string, int]("rows"), topic.New[string, string]("out")
	app := stream.New("through").IdleAfter(-1)
	app.Stream(in).Repartition(2).KeyBy(func(v int) string { return fmt.Sprint("c", v%5) }).
		LeftJoinTable(app.Table(rows), func(v, row int, ok bool) string { return fmt.Sprint(v, row, ok) }).To(out)
	d := streamtest.New(t, app)
	d.Input(rows).SendAt(at(1), "c3", 7)
	want := []string{}
	for i := range 40 {
		d.Input(in).SendAt(at(int64(100+i-i%4*10)), fmt.Sprint("k", i), i)
		row := 0
		if i%5 == 3 {
			row = 7
		}
		want = append(want, fmt.Sprint(i, row, i%5 == 3))
	}
	require.ElementsMatch(t, want, values(d.Output(out).Records()))
}
