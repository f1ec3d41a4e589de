package thalweg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var (
	mails = topic.New[string, string]("mails")
	dead  = topic.New[[]byte, []byte]("dead-mails")
)

// Two workers share the mails of one partition. What cannot be sent is tried again and
// becomes a dead letter.
func ExampleNode_Queue() {
	node, err := thalweg.Open("")
	if err != nil {
		panic(err)
	}
	defer node.Close()
	ctx, cancel := context.WithCancel(context.Background())
	sender, err := node.Producer(mails)
	if err != nil {
		panic(err)
	}
	for _, to := range []string{"ann", "bob", "nobody", "cid"} {
		if err := sender.Send(ctx, to, "hello "+to); err != nil {
			panic(err)
		}
	}

	queue, err := node.Queue(mails, "post", topic.QueueOptions{MaxDeliveries: 2, Backoff: -1, DeadLetters: dead})
	if err != nil {
		panic(err)
	}
	var workers, sent sync.WaitGroup
	sent.Add(3)
	for range 2 {
		workers.Go(func() {
			for mail, err := range queue.Receive(ctx) {
				switch {
				case err != nil:
					return // ctx has ended
				case mail.Key == "nobody":
					err = mail.Release(ctx, 0)
				default:
					fmt.Println("sent:", mail.Value)
					err = mail.Ack(ctx)
					sent.Done()
				}
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	for letter, err := range node.Read(ctx, dead, topic.Start()) {
		if err != nil {
			panic(err)
		}
		fmt.Println("dead:", string(letter.Value))
		for _, h := range letter.Headers {
			if h.Key == topic.HeaderCause || h.Key == topic.HeaderDeliveries {
				fmt.Printf("  %s: %s\n", h.Key, h.Value)
			}
		}
		break
	}
	sent.Wait()
	cancel()
	workers.Wait()
	// Unordered output:
	// sent: hello ann
	// sent: hello bob
	// sent: hello cid
	// dead: hello nobody
	//   thalweg-cause: deliveries
	//   thalweg-deliveries: 2
}

func sendMails(t *testing.T, n *thalweg.Node, top topic.Topic[string, string], records ...topic.Record[string, string]) {
	t.Helper()
	p, err := n.Producer(top)
	require.NoError(t, err)
	for _, r := range records {
		_, _, err := p.SendRecord(t.Context(), r)
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
}

func nextMail(t *testing.T, q *topic.Queue[string, string]) *topic.Received[string, string] {
	t.Helper()
	for d, err := range q.Receive(t.Context()) {
		require.NoError(t, err)
		return d
	}
	return nil
}

// letters returns the dead letters by value, each with its headers.
func letters(t *testing.T, n *thalweg.Node, top topic.Topic[[]byte, []byte]) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for r, err := range n.ReadToEnd(t.Context(), top, topic.Start()) {
		require.NoError(t, err)
		require.NotContains(t, found, string(r.Value), "twice")
		headers := map[string]string{"key": string(r.Key), "time": r.Time.Format(time.TimeOnly)}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		found[string(r.Value)] = headers
	}
	return found
}

// What is rejected, delivered too often or expired goes to the topic of dead letters as
// it was, with the cause, and ends in the queue.
func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := thalweg.Open("")
		require.NoError(t, err)
		at := time.Date(1999, 1, 1, 12, 0, 0, 0, time.UTC)
		timed := mails.Delayed()
		sendMails(t, n, timed,
			topic.Record[string, string]{Key: "a", Value: "rejected", Time: at, Headers: []topic.Header{{Key: "own", Value: []byte("x")}}},
			topic.Record[string, string]{Key: "b", Value: "slow", Time: at},
			topic.Record[string, string]{Key: "c", Value: "released", Time: at},
			topic.Record[string, string]{Key: "d", Value: "expired", Time: at, Expires: at},
			topic.Record[string, string]{Key: "e", Value: "done", Time: at},
			topic.Record[string, string]{NoKey: true, Value: "without key", Time: at})
		q, err := n.Queue(timed, "post", topic.QueueOptions{MaxDeliveries: 2, Backoff: time.Second, DeadLetters: dead})
		require.NoError(t, err)
		for range 7 {
			d := nextMail(t, q)
			switch d.Value {
			case "rejected", "without key":
				require.NoError(t, d.Reject(t.Context()))
			case "released":
				require.NoError(t, d.Release(t.Context(), time.Minute))
			case "done":
				require.NoError(t, d.Ack(t.Context()))
			}
		}
		time.Sleep(10 * time.Minute)
		common := func(key, cause, offset, deliveries string) map[string]string {
			return map[string]string{
				"key": key, "time": "12:00:00", topic.HeaderCause: cause, topic.HeaderQueue: "post", topic.HeaderTopic: "mails",
				topic.HeaderPartition: "0", topic.HeaderOffset: offset, topic.HeaderDeliveries: deliveries,
			}
		}
		rejected, expired := common("a", "rejected", "0", "1"), common("d", "expired", "3", "0")
		rejected["own"] = "x"
		expired[topic.HeaderExpires] = fmt.Sprint(at.UnixMilli())
		require.Equal(t, map[string]map[string]string{
			"rejected":    rejected,
			"slow":        common("b", "deliveries", "1", "2"),
			"released":    common("c", "deliveries", "2", "2"),
			"expired":     expired,
			"without key": common("", "rejected", "5", "1"),
		}, letters(t, n, dead))
		s, err := q.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, []topic.QueuePartitionStatus{{Start: 6, Delivered: 7, Acknowledged: 1, Rejected: 2, Exhausted: 2, Expired: 1}}, s.Partitions)
		require.Equal(t, int64(5), s.Partitions[0].DeadLetters())
		require.NoError(t, n.Close())
	})
}

// A record that the topic of dead letters does not take stays in the queue, the error
// says why, and it keeps no other from becoming one.
func TestDeadLetterRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := thalweg.Open("")
		require.NoError(t, err)
		sendMails(t, n, mails,
			topic.Record[string, string]{Key: "a", Value: strings.Repeat("long ", 100)},
			topic.Record[string, string]{Key: "b", Value: "short"},
			topic.Record[string, string]{Key: "c", Value: "acked"})
		small := dead.MaxRecordBytes(200)
		q, err := n.Queue(mails, "post", topic.QueueOptions{MaxDeliveries: 1, DeadLetters: small, Lock: time.Minute})
		require.NoError(t, err)
		long, _, acked := nextMail(t, q), nextMail(t, q), nextMail(t, q)
		require.ErrorIs(t, long.Reject(t.Context()), log.ErrTooLarge)
		require.ErrorIs(t, long.Ack(t.Context()), topic.ErrDeliveryOver)
		require.NoError(t, acked.Ack(t.Context()))
		time.Sleep(time.Hour)
		require.Len(t, letters(t, n, small), 1)
		s, err := q.Status(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, s.Partitions[0].DeadLetterError, log.ErrTooLarge)
		s.Partitions[0].DeadLetterError, s.Partitions[0].Oldest = nil, time.Time{}
		require.Equal(t, []topic.QueuePartitionStatus{{Backlog: 1, InFlight: 1, Delivered: 3, Acknowledged: 1, Exhausted: 1}}, s.Partitions)
		require.NoError(t, n.Close())
	})
}

// A record whose worker takes the process down with it is given up after as many
// processes as deliveries are allowed, and the others are done.
func TestPoisonKillsTheProcess(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *thalweg.Node {
		n, err := thalweg.Options{Log: log.Options{FS: fs}}.Open("node")
		require.NoError(t, err)
		return n
	}
	n := open()
	sendMails(t, n, mails, topic.Record[string, string]{Key: "a", Value: "poison"}, topic.Record[string, string]{Key: "b", Value: "good"})
	processes, done := 0, false
	for !done {
		q, err := n.Queue(mails, "post", topic.QueueOptions{MaxDeliveries: 3, Backoff: -1, DeadLetters: dead})
		require.NoError(t, err)
		d := nextMail(t, q)
		if d.Value == "poison" {
			processes++
			require.Equal(t, processes, d.Count)
			killed := n
			fs = fs.Kill()
			n = open()
			require.NoError(t, killed.Close())
			continue
		}
		require.NoError(t, d.Ack(t.Context()))
		done = true
	}
	require.Equal(t, 3, processes)
	require.Equal(t, "3", letters(t, n, dead)["poison"][topic.HeaderDeliveries])
	require.NoError(t, n.Close())
}

// The file system stops in place of some operation, for each in turn, while records are
// acknowledged, rejected and delivered too often, and loses what was not synced, or
// some of it. In the end each record is done once: acknowledged or a dead letter, and
// what an answer said was so stays so.
func TestDeadLettersSurviveACrashAnywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	step := int64(1)
	if testing.Short() {
		step = 75
	}
	for at := 1 + rand.New(rand.NewPCG(seed, 0)).Int64N(step); crashDeadLetters(t, seed, at); at += step {
	}
}

func crashDeadLetters(t *testing.T, seed uint64, at int64) (stopped bool) {
	const records = 6
	mails, dead := mails.Sync(log.SyncAlways), dead.Sync(log.SyncAlways)
	fs := vfs.NewMem()
	open := func() (*thalweg.Node, *topic.Queue[string, string], error) {
		n, err := thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 1 << 13, MaxBatchBytes: 1 << 13}, SyncInterval: -1}.Open("node")
		if err != nil {
			return nil, nil, err
		}
		q, err := n.Queue(mails, "post", topic.QueueOptions{MaxDeliveries: 2, Backoff: -1, DeadLetters: dead})
		return n, q, err
	}
	n, err := thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 1 << 13, MaxBatchBytes: 1 << 13}, SyncInterval: -1}.Open("node")
	require.NoError(t, err)
	for i := range records {
		sendMails(t, n, mails, topic.Record[string, string]{Key: "k", Value: fmt.Sprint(i)})
	}
	require.NoError(t, n.Close())

	acked, rejected := map[string]bool{}, map[string]bool{}
	work := func(q *topic.Queue[string, string], random *rand.Rand) (stopped bool) {
		for {
			s, err := q.Status(t.Context())
			if err != nil {
				return true
			}
			if s.Partitions[0].Start == records {
				return false
			}
			if s.Partitions[0].DeadLetterError != nil {
				return true
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			for d, err := range q.Receive(ctx) {
				if errors.Is(err, context.DeadlineExceeded) {
					break // the last ones become dead letters by themselves
				}
				if err != nil {
					cancel()
					return true
				}
				require.False(t, acked[d.Value] || rejected[d.Value], "operation %d: record %s is delivered again", at, d.Value)
				switch random.IntN(3) {
				case 0:
					err = d.Ack(t.Context())
					acked[d.Value] = err == nil
				case 1:
					err = d.Reject(t.Context())
					rejected[d.Value] = err == nil
				default:
					err = d.Release(t.Context(), -1)
				}
				if err != nil {
					cancel()
					return true
				}
				break
			}
			cancel()
		}
	}
	random := rand.New(rand.NewPCG(seed, uint64(at)))
	fs.StopAt(fs.Ops() + at)
	n, q, err := open()
	stopped = true
	if err == nil {
		stopped = work(q, random)
	}
	if n != nil {
		_ = n.Close()
	}

	if at%2 == 0 {
		fs = fs.Kill()
	} else {
		fs = fs.Crash(seed + uint64(at))
	}
	n, q, err = open()
	require.NoError(t, err, "operation %d", at)
	require.False(t, work(q, random), "operation %d", at)
	found := letters(t, n, dead)
	for i := range records {
		value := fmt.Sprint(i)
		_, isDead := found[value]
		require.False(t, acked[value] && isDead, "operation %d: record %s was acknowledged and is a dead letter", at, value)
		if rejected[value] {
			require.True(t, isDead, "operation %d: record %s was rejected", at, value)
		}
	}
	s, err := q.Status(t.Context())
	require.NoError(t, err)
	p := s.Partitions[0]
	require.Equal(t, int64(len(found)), p.DeadLetters(), "operation %d", at)
	require.Equal(t, int64(records), p.Acknowledged+p.DeadLetters(), "operation %d", at)
	require.NoError(t, n.Close())
	return stopped
}

// Queues are listed, described and deleted, open or not; a topic takes its queues with
// it.
func TestQueuesOfANode(t *testing.T) {
	n, err := thalweg.Open("")
	require.NoError(t, err)
	sendMails(t, n, mails, topic.Record[string, string]{Key: "a", Value: "1"}, topic.Record[string, string]{Key: "b", Value: "2"})
	q, err := n.Queue(mails, "post", topic.QueueOptions{DeadLetters: dead})
	require.NoError(t, err)
	second, err := n.Queue(mails, "other", topic.QueueOptions{})
	require.NoError(t, err)
	require.NoError(t, nextMail(t, q).Ack(t.Context()))
	require.NoError(t, second.Close())
	names, acked := []string{}, int64(0)
	for s, err := range n.Queues(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "mails", s.Topic)
		names = append(names, s.Name)
		acked += s.Partitions[0].Acknowledged
	}
	require.Equal(t, []string{"other", "post"}, names)
	require.Equal(t, int64(1), acked)
	_, err = n.QueueStatus(t.Context(), "none")
	require.ErrorIs(t, err, topic.ErrUnknownQueue)
	require.ErrorIs(t, n.Delete(t.Context(), mails), topic.ErrQueueInUse)
	require.ErrorIs(t, n.Delete(t.Context(), dead), topic.ErrQueueInUse)
	require.ErrorIs(t, n.DeleteQueue(t.Context(), "post"), topic.ErrQueueInUse)
	require.NoError(t, q.Close())
	require.NoError(t, n.DeleteQueue(t.Context(), "post"))
	require.ErrorIs(t, n.DeleteQueue(t.Context(), "post"), topic.ErrUnknownQueue)
	require.NoError(t, n.Delete(t.Context(), mails))
	for s := range n.Queues(t.Context()) {
		t.Fatalf("queue %q is left", s.Name)
	}
	q, err = n.Queue(mails, "post", topic.QueueOptions{})
	require.NoError(t, err)
	require.NoError(t, n.Close())
	for _, err := range q.Receive(t.Context()) {
		require.ErrorIs(t, err, topic.ErrQueueClosed)
	}
	_, err = n.Queue(mails, "post", topic.QueueOptions{})
	require.ErrorIs(t, err, thalweg.ErrClosed)
}

// A consumer keeps the order of offsets: it waits at a record that is not due, reads
// another partition meanwhile, commits no further, and passes over what has expired.
func TestConsumerOfDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := thalweg.Open("")
		require.NoError(t, err)
		timed := mails.Delayed().Partitions(2).PartitionBy(func(k string, _ int) int { return int(k[0] - '0') })
		begin := time.Now()
		p, err := n.Producer(timed)
		require.NoError(t, err)
		for _, r := range []topic.Record[string, string]{
			{Key: "0", Value: "a"}, {Key: "0", Value: "late", NotBefore: begin.Add(time.Hour)}, {Key: "0", Value: "behind"},
			{Key: "1", Value: "gone", Expires: begin.Add(time.Nanosecond)}, {Key: "1", Value: "b"},
		} {
			require.NoError(t, p.QueueRecord(t.Context(), r, nil))
		}
		require.NoError(t, p.Flush(t.Context()))
		var expired [][2]int64
		read := timed.OnExpired(func(partition int, offset int64) { expired = append(expired, [2]int64{int64(partition), offset}) })
		for name, records := range map[string]func(c *topic.Consumer[string, string], yield func(topic.Record[string, string]) bool){
			"records": func(c *topic.Consumer[string, string], yield func(topic.Record[string, string]) bool) {
				for r, err := range c.Records(t.Context()) {
					require.NoError(t, err)
					if !yield(r) {
						return
					}
				}
			},
			"poll": func(c *topic.Consumer[string, string], yield func(topic.Record[string, string]) bool) {
				for {
					records, err := c.Poll(t.Context())
					require.NoError(t, err)
					for _, r := range records {
						if !yield(r) {
							return
						}
					}
				}
			},
		} {
			begin := time.Now()
			expired = nil
			at := map[string]time.Duration{}
			c, err := n.Consumer(read, name)
			require.NoError(t, err)
			records(c, func(r topic.Record[string, string]) bool {
				at[r.Value] = time.Since(begin).Truncate(time.Second)
				if r.Value == "late" {
					require.False(t, time.Now().Before(r.NotBefore))
				}
				return r.Value != "behind"
			})
			require.Contains(t, at, "a")
			require.Contains(t, at, "b")
			require.Contains(t, at, "late")
			require.Len(t, at, 4)
			require.LessOrEqual(t, at["b"], at["late"])
			require.Equal(t, [][2]int64{{1, 0}}, expired)
			require.NoError(t, c.Commit(t.Context()))
			require.NoError(t, c.Close())
		}

		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Key: "0", Value: "later", NotBefore: time.Now().Add(time.Hour)}, nil))
		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Key: "0", Value: "last"}, nil))
		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Key: "1", Value: "c"}, nil))
		require.NoError(t, p.Flush(t.Context()))
		raw, err := n.Subscribe(topic.Topics("mails"), "poll")
		require.NoError(t, err)
		begin = time.Now()
		var order []string
		for r, err := range raw.Records(t.Context()) {
			require.NoError(t, err)
			order = append(order, fmt.Sprint(string(r.Value), " ", time.Since(begin).Truncate(time.Minute)))
			if len(order) == 3 {
				break
			}
		}
		require.Equal(t, []string{"c 0s", "later 1h0m0s", "last 1h0m0s"}, order)
		require.NoError(t, n.Close())
	})
}
