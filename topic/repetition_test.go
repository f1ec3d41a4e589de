package topic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// life is a process with one producer that goes by a name.
type life struct {
	t     *testing.T
	clock *time.Time
	node  *node
	p     *topic.Producer[string, string]
}

var journal = topic.New[string, string]("journal")

func (l *life) begin(fs *vfs.Mem) {
	opened, err := log.Open("data", log.Options{
		FS: fs, SegmentBytes: 1 << 16, MaxBatchBytes: 1 << 16, ProducerExpiry: time.Minute,
		Now: func() time.Time { return *l.clock },
	})
	require.NoError(l.t, err)
	l.node = &node{log: opened, fs: fs}
	l.p, err = topic.NewProducer(l.t.Context(), l.node, journal, topic.ProducerOptions{Name: "p"})
	require.NoError(l.t, err)
}

func (l *life) restart() {
	require.NoError(l.t, l.p.Close())
	require.NoError(l.t, l.node.log.Close())
	l.begin(l.node.fs)
}

func (l *life) send() int64 {
	l.t.Helper()
	_, offset, err := l.p.SendRecord(l.t.Context(), topic.Record[string, string]{Key: "k", Value: "v"})
	require.NoError(l.t, err)
	return offset
}

func (l *life) repeat(from int64) error { return l.p.Repeat(l.t.Context(), 0, from) }

func (l *life) end() log.Offset { return l.node.partition(l.t, "journal", 0).End().Offset }

// What was acknowledged once is recognised when it is repeated, whether or not the
// record still exists and however often the process has restarted, until the memory of
// it expires; a gap never passes while it lasts. The wall clock is in milliseconds.
func TestRepetitionAfterDeletesRestartsAndAPause(t *testing.T) {
	clock := time.UnixMilli(0)
	l := &life{t: t, clock: &clock}
	at := func(ms int64) { clock = time.UnixMilli(ms) }

	l.begin(vfs.NewMem())
	for i := range 3 {
		require.EqualValues(t, i, l.send())
	}
	at(10)
	require.NoError(t, l.node.partition(t, "journal", 0).DeleteBefore(3))
	at(20)
	l.restart()
	written, err := l.p.Written(0)
	require.NoError(t, err)
	require.EqualValues(t, 3, written)
	at(30)
	require.NoError(t, l.repeat(2))
	require.EqualValues(t, 2, l.send(), "a repetition")
	require.EqualValues(t, 3, l.end(), "nothing stored")
	at(40)
	require.EqualValues(t, 3, l.send())
	at(50)
	require.ErrorIs(t, l.repeat(5), log.ErrOutOfOrder)
	require.EqualValues(t, 4, l.end())
	at(60)
	l.restart()
	require.NoError(t, l.repeat(3))
	require.EqualValues(t, 3, l.send(), "a repetition")
	require.EqualValues(t, 4, l.end())
	at(100_000) // the memory has expired
	require.EqualValues(t, 4, l.send())
	require.EqualValues(t, 5, l.end())
	at(100_010)
	require.NoError(t, l.repeat(4))
	require.EqualValues(t, 4, l.send(), "a repetition")
	require.EqualValues(t, 5, l.end())
	require.NoError(t, l.p.Close())
	require.NoError(t, l.node.log.Close())
}

// Once the log has forgotten a producer it begins to count anew.
func TestWrittenAfterExpiry(t *testing.T) {
	clock := time.UnixMilli(0)
	l := &life{t: t, clock: &clock}
	l.begin(vfs.NewMem())
	l.send()
	clock = clock.Add(2 * time.Minute)
	l.restart()
	written, err := l.p.Written(0)
	require.NoError(t, err)
	require.Zero(t, written)
	require.EqualValues(t, 1, l.send())
	_, err = l.p.Written(1)
	require.ErrorContains(t, err, "no partition 1")
	require.NoError(t, l.p.Close())
	require.NoError(t, l.node.log.Close())
}

// A program that was killed repeats its last records, in whatever batches, between
// those of others: each is in the log once, and the answer is where it is.
func TestRepetitionInOtherBatches(t *testing.T) {
	clock := time.UnixMilli(0)
	l := &life{t: t, clock: &clock}
	l.begin(vfs.NewMem())
	other, err := topic.NewProducer(t.Context(), l.node, journal, topic.ProducerOptions{})
	require.NoError(t, err)
	var want []int64
	batch := func(first, n int) []topic.Record[string, string] {
		var records []topic.Record[string, string]
		for i := range n {
			records = append(records, topic.Record[string, string]{Key: "k", Value: fmt.Sprint(first + i)})
		}
		return records
	}
	for i := range 7 { // five batches of the seven are remembered
		results, err := l.p.SendBatch(t.Context(), batch(3*i, 3))
		require.NoError(t, err)
		for _, r := range results {
			want = append(want, r.Offset)
		}
		require.NoError(t, other.Send(t.Context(), "k", "other"))
	}
	require.NoError(t, other.Close())
	_ = l.node.fs.Ops()
	killed := l.node.fs.Kill()
	l.node.fs.Stop()
	_ = l.p.Close()
	_ = l.node.log.Close()

	l.begin(killed)
	end := l.end()
	require.ErrorIs(t, l.repeat(5), log.ErrOutOfOrder, "further back than what is remembered")
	require.ErrorIs(t, l.repeat(-1), log.ErrOutOfOrder)
	require.NoError(t, l.repeat(7))
	results, err := l.p.SendBatch(t.Context(), batch(7, 20)) // 14 of them repeat
	require.NoError(t, err)
	for i, r := range results[:14] {
		require.Equal(t, want[7+i], r.Offset)
	}
	require.EqualValues(t, end, results[14].Offset)
	require.EqualValues(t, end+6, l.end())
	seen := map[string]int{}
	for _, r := range all(t, topic.ReadToEnd(t.Context(), l.node, journal, topic.Start())) {
		seen[r.Value]++
	}
	for i := range 27 {
		require.Equal(t, 1, seen[fmt.Sprint(i)], "record %d", i)
	}

	// While it repeats, a condition has no place; a number of the last batch but for
	// what it holds is no gap.
	require.NoError(t, l.repeat(26))
	_, _, err = l.p.SendIf(t.Context(), topic.Record[string, string]{Key: "k"}, topic.Absent())
	require.ErrorContains(t, err, "being repeated")
	require.NoError(t, l.repeat(27), "which ends it")
	require.EqualValues(t, end+6, l.send())
	require.NoError(t, l.p.Close())
	require.ErrorIs(t, l.repeat(27), topic.ErrClosed)
	require.NoError(t, l.node.log.Close())
}

// A repetition waits for what is queued.
func TestRepeatWaits(t *testing.T) {
	n := openNode(t)
	p, err := topic.NewProducer(t.Context(), n, journal, topic.ProducerOptions{Linger: time.Hour})
	require.NoError(t, err)
	defer p.Close()
	pending, err := p.Async(t.Context(), "k", "v")
	require.NoError(t, err)
	_, done := pending.Result()
	require.False(t, done)
	require.NoError(t, p.Repeat(t.Context(), 0, 0))
	r, done := pending.Result()
	require.True(t, done)
	require.Equal(t, topic.Result{Time: r.Time}, r)
	_, offset, err := p.SendRecord(t.Context(), topic.Record[string, string]{Key: "k", Value: "v"})
	require.NoError(t, err)
	require.Zero(t, offset)
	require.EqualValues(t, 1, n.partition(t, "journal", 0).End().Offset)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Queue(t.Context(), "k", "v"))
	require.ErrorIs(t, p.Repeat(ended, 0, 0), context.Canceled)
}
