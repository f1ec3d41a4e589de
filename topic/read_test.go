package topic_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

var lines = topic.New[string, string]("lines")

// at is a time in the milliseconds the tests count in.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// all collects what a finite read yields; the test fails on an error.
func all[K, V any](tb testing.TB, records iter.Seq2[topic.Record[K, V], error]) []topic.Record[K, V] {
	var got []topic.Record[K, V]
	for r, err := range records {
		require.NoError(tb, err)
		got = append(got, r)
	}
	return got
}

// values returns the values of records as "value@offset".
func values(records []topic.Record[string, string]) []string {
	got := []string{}
	for _, r := range records {
		got = append(got, fmt.Sprintf("%s@%d", r.Value, r.Offset))
	}
	return got
}

// transact appends values to p as part of id's transaction.
func transact(tb testing.TB, p *log.Partition, id log.ProducerID, sequence int32, values ...string) {
	var b log.BatchBuilder
	for _, v := range values {
		b.Add(1, []byte("k"), []byte(v), nil)
	}
	_, err := p.Append(tb.Context(), b.Finish(log.Producer{ID: id, Sequence: sequence, Transactional: true}))
	require.NoError(tb, err)
}

func endTransaction(tb testing.TB, p *log.Partition, id log.ProducerID, commit bool) {
	_, err := p.EndTransaction(id, commit)
	require.NoError(tb, err)
}

// Everything a record says of itself comes back as it was sent.
func TestReadGivesWhatWasSent(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	want := []topic.Record[string, string]{
		{Key: "k", Value: "v", Time: at(1), Headers: []topic.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}}},
		{Key: "", Value: "", Time: at(-2)},
		{NoKey: true, Value: "v", Time: at(3)},
		{Key: "k", Deleted: true, Time: at(4)},
		{Key: "ключ", Value: "\x00\xff", Time: at(5)},
	}
	for i := range want {
		partition, offset, err := p.SendRecord(t.Context(), want[i])
		require.NoError(t, err)
		want[i].Partition, want[i].Offset = partition, offset
	}
	got := all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start()))
	require.Equal(t, want, got)
	require.NoError(t, p.Delete(t.Context(), "gone"))
	got = all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Offset(5)))
	require.Equal(t, "gone", got[0].Key)
	require.True(t, got[0].Deleted)
}

// The default codecs serve a key and a value of other types.
func TestReadDecodes(t *testing.T) {
	type order struct {
		Customer string
		Cents    int64
	}
	orders := topic.New[int64, order]("orders").EventTime(func(o order) time.Time { return at(o.Cents) })
	n := openNode(t)
	p := produce(t, n, orders)
	require.NoError(t, p.Send(t.Context(), -7, order{"ann", 250}))
	require.Equal(t,
		[]topic.Record[int64, order]{{Key: -7, Value: order{"ann", 250}, Time: at(250)}},
		all(t, topic.ReadToEnd(t.Context(), n, orders, topic.Start())))
}

// Where a read begins.
func TestReadFrom(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	for i, ms := range []int64{100, 300, 200, 400} {
		_, _, err := p.SendRecord(t.Context(), topic.Record[string, string]{Key: "k", Value: string(rune('a' + i)), Time: at(ms)})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		from topic.Position
		want []string
	}{
		{topic.Position{}, []string{"a@0", "b@1", "c@2", "d@3"}},
		{topic.Start(), []string{"a@0", "b@1", "c@2", "d@3"}},
		{topic.End(), []string{}},
		{topic.Offset(0), []string{"a@0", "b@1", "c@2", "d@3"}},
		{topic.Offset(3), []string{"d@3"}},
		{topic.Offset(4), []string{}},
		{topic.At(at(-1)), []string{"a@0", "b@1", "c@2", "d@3"}},
		{topic.At(at(100)), []string{"a@0", "b@1", "c@2", "d@3"}},
		{topic.At(at(101)), []string{"b@1", "c@2", "d@3"}},
		{topic.At(at(200)), []string{"b@1", "c@2", "d@3"}}, // the first of 200 or later, not c
		{topic.At(at(301)), []string{"d@3"}},
		{topic.At(at(400).Add(time.Millisecond / 2)), []string{"d@3"}}, // records keep milliseconds
		{topic.At(at(401)), []string{}},
	} {
		require.Equal(t, c.want, values(all(t, topic.ReadToEnd(t.Context(), n, lines, c.from))), c.from)
	}
}

// An offset outside of the log is an error that names it and the range, and
// nothing is delivered.
func TestReadOutOfRange(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	for i := range 100 {
		require.NoError(t, p.Queue(t.Context(), "k", fmt.Sprint(i)))
	}
	require.NoError(t, p.Flush(t.Context()))
	require.NoError(t, n.partition(t, "lines", 0).DeleteBefore(70))

	for _, off := range []int64{60, 101, -1} {
		for _, read := range []iter.Seq2[topic.Record[string, string], error]{
			topic.Read(t.Context(), n, lines, topic.Offset(off)),
			topic.ReadToEnd(t.Context(), n, lines, topic.Offset(off)),
		} {
			steps := 0
			for r, err := range read {
				steps++
				require.Zero(t, r)
				require.ErrorIs(t, err, log.ErrOffsetOutOfRange)
				require.ErrorContains(t, err, fmt.Sprintf("offset %d of lines-0 is out of range [70, 100]", off))
			}
			require.Equal(t, 1, steps)
		}
	}
	require.Len(t, all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start())), 30)
	require.Len(t, all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Offset(70))), 30)
	require.Empty(t, all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Offset(100))))
}

// Records that go while they are being read are missed with an error, not in
// silence.
func TestReadFallsBehindTheStart(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	for i := range 3 {
		require.NoError(t, p.Send(t.Context(), "k", fmt.Sprint(i)))
	}
	var got []string
	var last error
	for r, err := range topic.ReadToEnd(t.Context(), n, lines, topic.Start()) {
		if last = err; err != nil {
			break
		}
		got = append(got, r.Value)
		require.NoError(t, n.partition(t, "lines", 0).DeleteBefore(2))
	}
	require.Equal(t, []string{"0"}, got)
	require.ErrorIs(t, last, log.ErrOffsetOutOfRange)
}

// Committed reads stop at the last stable offset and leave out what was
// aborted; where a read of everything differs is the topic's choice. End means
// the end of what the reader may see.
func TestReadIsolation(t *testing.T) {
	n := openNode(t)
	everything := lines.Uncommitted()
	p := produce(t, n, lines)
	part := n.partition(t, "lines", 0)
	check := func(stable log.Offset, committed, uncommitted []string) {
		t.Helper()
		require.Equal(t, committed, values(all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start()))))
		require.Equal(t, uncommitted, values(all(t, topic.ReadToEnd(t.Context(), n, everything, topic.Start()))))
		off, err := topic.End().Resolve(part)
		require.NoError(t, err)
		require.Equal(t, stable, off)
		off, err = topic.End().ResolveFor(part, log.ReadUncommitted)
		require.NoError(t, err)
		require.Equal(t, part.HighWatermark(), off)
		off, err = topic.At(at(1 << 50)).Resolve(part)
		require.NoError(t, err)
		require.Equal(t, stable, off)
	}
	transact(t, part, 101, 0, "x1")
	transact(t, part, 101, 1, "x2")
	require.NoError(t, p.Send(t.Context(), "k", "n1"))
	check(0, []string{}, []string{"x1@0", "x2@1", "n1@2"})
	endTransaction(t, part, 101, true)
	check(4, []string{"x1@0", "x2@1", "n1@2"}, []string{"x1@0", "x2@1", "n1@2"})
	transact(t, part, 102, 0, "y1")
	require.NoError(t, p.Send(t.Context(), "k", "n2"))
	check(4, []string{"x1@0", "x2@1", "n1@2"}, []string{"x1@0", "x2@1", "n1@2", "y1@4", "n2@5"})
	endTransaction(t, part, 102, false)
	check(7, []string{"x1@0", "x2@1", "n1@2", "n2@5"}, []string{"x1@0", "x2@1", "n1@2", "y1@4", "n2@5"})

	require.Equal(t, []string{"n2@5"}, values(all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Offset(4)))))
}

// A follower gets a transaction at once when it commits, and never an aborted
// one.
func TestReadFollowsCommits(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	part := n.partition(t, "lines", 0)
	// End would be resolved by the first call of next, which may come after all is sent.
	next, stop := iter.Pull2(topic.Read(t.Context(), n, lines, topic.Start()))
	defer stop()
	transact(t, part, 101, 0, "aborted")
	transact(t, part, 102, 0, "committed")
	endTransaction(t, part, 101, false)
	go func() {
		endTransaction(t, part, 102, true)
		p.Send(t.Context(), "k", "plain")
	}()
	for _, want := range []string{"committed", "plain"} {
		r, err, ok := next()
		require.True(t, ok)
		require.NoError(t, err)
		require.Equal(t, want, r.Value)
	}
}

// Reading to the end covers what was there when it began, in every partition,
// and ends although more comes.
func TestReadToEndEnds(t *testing.T) {
	n := openNode(t)
	many := lines.Partitions(3)
	p := produce(t, n, many)
	for i := range 30 {
		require.NoError(t, p.Send(t.Context(), fmt.Sprint(i), "before"))
	}
	seen := 0
	for r, err := range topic.ReadToEnd(t.Context(), n, many, topic.Start()) {
		require.NoError(t, err)
		require.Equal(t, "before", r.Value)
		require.NoError(t, p.Send(t.Context(), fmt.Sprint(seen), "after"))
		seen++
	}
	require.Equal(t, 30, seen)
}

// No partition waits until another has nothing more.
func TestPartitionsTakeTurns(t *testing.T) {
	n := openNode(t)
	byKey := lines.Partitions(3).PartitionBy(func(k string, n int) int { return int(k[0] - '0') })
	p := produce(t, n, byKey)
	for range 4 { // a batch each
		for _, key := range []string{"0", "1", "2"} {
			require.NoError(t, p.Send(t.Context(), key, "v"))
		}
	}
	var order []int
	for _, r := range all(t, topic.ReadToEnd(t.Context(), n, byKey, topic.Start())) {
		order = append(order, r.Partition)
	}
	require.Equal(t, []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, order)

	got := all(t, topic.ReadPartitionToEnd(t.Context(), n, byKey, 1, topic.Offset(2)))
	require.Len(t, got, 2)
	for i, r := range got {
		require.Equal(t, 1, r.Partition)
		require.EqualValues(t, 2+i, r.Offset)
	}
	for _, i := range []int{-2, 3} {
		for _, err := range topic.ReadPartition(t.Context(), n, byKey, i, topic.Start()) {
			require.ErrorIs(t, err, log.ErrUnknownTopic)
			require.ErrorContains(t, err, `partition`)
			require.ErrorContains(t, err, `"lines", which has 3`)
		}
	}
}

// Read waits for records without asking again and again, in whatever partition
// they come; with ctx it ends and says so.
func TestReadFollows(t *testing.T) {
	for _, partitions := range []int{1, 5} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			n := openNode(t)
			many := lines.Partitions(partitions)
			p := produce(t, n, many)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			next, stop := iter.Pull2(topic.Read(ctx, n, many, topic.Start()))
			defer stop()
			for i := range 200 {
				value := fmt.Sprint(i)
				if i%2 == 0 {
					require.NoError(t, p.Send(ctx, value, value))
				} else {
					go p.Send(ctx, value, value)
				}
				r, err, ok := next()
				require.True(t, ok)
				require.NoError(t, err)
				require.Equal(t, value, r.Value)
			}
			go cancel()
			_, err, ok := next()
			require.True(t, ok)
			require.ErrorIs(t, err, context.Canceled)
			_, _, ok = next()
			require.False(t, ok)
		})
	}
}

// Reads end with an error when the log is closed below them.
func TestReadOfClosedLog(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		n := openNode(t)
		many := lines.Partitions(partitions)
		p := produce(t, n, many)
		require.NoError(t, p.Send(t.Context(), "k", "v"))
		next, stop := iter.Pull2(topic.Read(t.Context(), n, many, topic.Start()))
		defer stop()
		_, err, _ := next()
		require.NoError(t, err)
		go n.log.Close()
		_, err, ok := next()
		require.True(t, ok)
		require.ErrorIs(t, err, log.ErrClosed)

		for _, err := range topic.ReadToEnd(t.Context(), n, many, topic.Start()) {
			require.ErrorIs(t, err, log.ErrClosed)
		}
		err = p.Send(t.Context(), "k", "v")
		require.ErrorIs(t, err, log.ErrClosed)
		require.NotErrorIs(t, err, topic.ErrUnknown)
		_, err = topic.NewProducer(t.Context(), n, many, topic.ProducerOptions{})
		require.ErrorIs(t, err, log.ErrClosed)
	}
}

// A loop body may break, and the iterator may be used again.
func TestReadIsReusable(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	for i := range 3 {
		require.NoError(t, p.Queue(t.Context(), "k", fmt.Sprint(i)))
	}
	require.NoError(t, p.Flush(t.Context()))
	read := topic.Read(t.Context(), n, lines, topic.Start())
	for range 2 {
		for r, err := range read {
			require.NoError(t, err)
			require.EqualValues(t, 0, r.Offset)
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	var last error
	for r, err := range topic.ReadToEnd(ctx, n, lines, topic.Start()) {
		if last = err; err == nil {
			got = append(got, r.Value)
			cancel() // in the middle of a batch
		}
	}
	require.Equal(t, []string{"0"}, got)
	require.ErrorIs(t, last, context.Canceled)
}

// What does not decode ends the read with an error that says where it is.
func TestReadOfUndecodableRecord(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	for _, v := range []string{"1", "2", "x", "4"} {
		require.NoError(t, p.Queue(t.Context(), "k", v))
	}
	require.NoError(t, p.Flush(t.Context()))
	refused := errors.New("not a number")
	number := codec.Func(
		func(dst []byte, v int) ([]byte, error) { return append(dst, byte('0'+v)), nil },
		func(src []byte) (int, error) {
			if src[0] < '0' || src[0] > '9' {
				return 0, refused
			}
			return int(src[0] - '0'), nil
		},
	)
	numbers := topic.New[string, int]("lines").ValueCodec(number)
	var got []int
	var last error
	for r, err := range topic.ReadToEnd(t.Context(), n, numbers, topic.Start()) {
		if last = err; err == nil {
			got = append(got, r.Value)
		}
	}
	require.Equal(t, []int{1, 2}, got)
	require.ErrorIs(t, last, refused)
	e, ok := errors.AsType[*topic.CodecError](last)
	require.True(t, ok)
	require.Equal(t, topic.CodecError{Topic: "lines", Partition: 0, Offset: 2, Part: "value", Type: "int", Err: e.Err}, *e)
	require.ErrorContains(t, last, `topic "lines": decode value of type int at partition 0, offset 2: `)
	require.ErrorContains(t, last, "not a number")

	keys := topic.New[int, string]("lines").KeyCodec(number)
	for _, err := range topic.ReadToEnd(t.Context(), n, keys, topic.Start()) {
		require.ErrorContains(t, err, "decode key of type int at partition 0, offset 0")
	}
}

// What a record holds stays valid when its segment is gone.
func TestReadRecordsOutliveTheirSegment(t *testing.T) {
	bytesTopic := topic.New[[]byte, []byte]("bytes")
	n := openNode(t)
	p := produce(t, n, bytesTopic)
	value := []byte(strings.Repeat("v", 1000))
	for range 300 { // several segments
		_, _, err := p.SendRecord(t.Context(), topic.Record[[]byte, []byte]{Key: []byte("k"), Value: value, Headers: []topic.Header{{Key: "h", Value: value}}})
		require.NoError(t, err)
	}
	got := all(t, topic.ReadToEnd(t.Context(), n, bytesTopic, topic.Start()))
	require.NoError(t, n.partition(t, "bytes", 0).DeleteBefore(299))
	for i, r := range got {
		require.EqualValues(t, i, r.Offset)
		require.Equal(t, "k", string(r.Key))
		require.Equal(t, value, r.Value)
		require.Equal(t, value, r.Headers[0].Value)
	}
}

// A fault in the declaration comes back from whatever uses the topic first.
func TestFaultsComeBackAtFirstUse(t *testing.T) {
	n := openNode(t)
	for _, bad := range []topic.Topic[string, string]{lines.Partitions(0), topic.New[string, string]("a/b"), {}} {
		_, err := topic.NewProducer(t.Context(), n, bad, topic.ProducerOptions{})
		require.ErrorContains(t, err, bad.Err().Error())
		for _, err := range topic.ReadToEnd(t.Context(), n, bad, topic.Start()) {
			require.ErrorContains(t, err, bad.Err().Error())
		}
	}
	noCodec := topic.New[string, chan int]("lines")
	_, err := topic.NewProducer(t.Context(), n, noCodec, topic.ProducerOptions{})
	require.ErrorContains(t, err, "chan int")
	for _, err := range topic.Read(t.Context(), n, noCodec, topic.Start()) {
		require.ErrorContains(t, err, "chan int")
	}

	produce(t, n, lines)
	_, err = topic.NewProducer(t.Context(), n, lines.Partitions(2), topic.ProducerOptions{})
	require.ErrorIs(t, err, log.ErrTopicExists)
	require.ErrorContains(t, err, `"lines"`)
}

// Several producers and a follower of the same topic, under every sync policy:
// the follower gets every record once and each producer's in order.
func TestProducersAndFollower(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for _, policy := range []log.Sync{log.SyncByOS, log.SyncAlways, log.SyncEvery(time.Millisecond)} {
		const producers, records, partitions = 4, 300, 3
		n := openNode(t)
		many := lines.Partitions(partitions).Sync(policy)
		var group sync.WaitGroup
		for i := range producers {
			p := produce(t, n, many)
			group.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				for k := range records {
					r := topic.Record[string, string]{Key: fmt.Sprint(rnd.IntN(9)), Value: fmt.Sprintf("%d %d", i, k)}
					var err error
					if rnd.IntN(20) == 0 {
						_, _, err = p.SendRecord(t.Context(), r)
					} else {
						err = p.QueueRecord(t.Context(), r, nil)
					}
					if err != nil {
						t.Error(err)
					}
				}
				if err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		var next [partitions]int64
		var last [producers][partitions]int
		seen := map[string]bool{}
		for r, err := range topic.Read(t.Context(), n, many, topic.Start()) {
			require.NoError(t, err)
			require.Equal(t, next[r.Partition], r.Offset)
			next[r.Partition]++
			require.False(t, seen[r.Value], r.Value)
			seen[r.Value] = true
			var i, k int
			_, err := fmt.Sscan(r.Value, &i, &k)
			require.NoError(t, err)
			require.Less(t, last[i][r.Partition], k+1)
			last[i][r.Partition] = k + 1
			if len(seen) == producers*records {
				break
			}
		}
		group.Wait()
	}
}

// A sync that fails leaves the outcome of what waited for it unknown. After a
// reopening each record that was acknowledged is there.
func TestFailedSync(t *testing.T) {
	n := openNode(t)
	durable := lines.Sync(log.SyncAlways)
	p := produce(t, n, durable)
	require.NoError(t, p.Send(t.Context(), "k", "acknowledged"))
	n.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			return syscall.EIO
		}
		return nil
	})
	err := p.Send(t.Context(), "k", "lost?")
	require.ErrorIs(t, err, topic.ErrUnknown)
	require.ErrorIs(t, err, log.ErrOffline)
	err = p.Send(t.Context(), "k", "refused")
	require.NotErrorIs(t, err, topic.ErrUnknown)
	require.ErrorIs(t, err, log.ErrOffline)

	// A follower is told, too, that nothing will come.
	var got []string
	var last error
	for r, err := range topic.Read(t.Context(), n, durable, topic.Start()) {
		if last = err; err == nil {
			got = append(got, r.Value)
		}
	}
	require.Equal(t, []string{"acknowledged"}, got)
	require.ErrorIs(t, last, log.ErrOffline)
}

// A full disk fails what it has no room for, definitely, and nothing else.
func TestFullDisk(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	require.NoError(t, p.Send(t.Context(), "k", "first"))
	n.fs.SetCapacity(1) // nothing new fits
	value := strings.Repeat("v", 10_000)
	var stored []string
	var err error
	for i := 0; err == nil; i++ {
		v := fmt.Sprint(i, value)
		if err = p.Send(t.Context(), "k", v); err == nil {
			stored = append(stored, v)
		}
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, topic.ErrUnknown)
	n.fs.SetCapacity(0)
	require.NoError(t, p.Send(t.Context(), "k", "last"))
	var got []string
	for _, r := range all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start())) {
		got = append(got, r.Value)
	}
	require.Equal(t, slices.Concat([]string{"first"}, stored, []string{"last"}), got)
}

// A record the log does not take is refused by itself.
func TestRecordTooLargeForTheLog(t *testing.T) {
	n := openNode(t) // batches of 1 MiB at most
	p := produce(t, n, lines)
	require.NoError(t, p.Queue(t.Context(), "k", "before"))
	err := p.Queue(t.Context(), "k", strings.Repeat("v", 2<<20))
	require.ErrorIs(t, err, log.ErrTooLarge)
	e, ok := errors.AsType[*topic.TooLargeError](err)
	require.True(t, ok)
	require.Less(t, e.Limit, 1<<20)
	require.NoError(t, p.Queue(t.Context(), "k", strings.Repeat("v", e.Limit-100)), "what is below the limit is taken")
	require.NoError(t, p.Queue(t.Context(), "k", "after"))
	require.NoError(t, p.Flush(t.Context()))
	got := values(all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start())))
	require.Len(t, got, 3)
	require.Equal(t, "before@0", got[0])
	require.Equal(t, "after@2", got[2])
}

// A call whose context has ended sends nothing, and says so for certain.
func TestSendWithAnEndedContext(t *testing.T) {
	n := openNode(t)
	p := produce(t, n, lines)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{p.Send(ended, "k", "v"), p.Queue(ended, "k", "v")} {
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, topic.ErrUnknown)
	}
	require.NoError(t, p.Flush(t.Context()))
	require.Empty(t, all(t, topic.ReadToEnd(t.Context(), n, lines, topic.Start())))
}
