package thalweg_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

var words = topic.New[string, int64]("words").Partitions(3)

// What a producer was told is there, is there after Close and Open.
func TestRecordsSurviveClose(t *testing.T) {
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	producer, err := node.Producer(words)
	require.NoError(t, err)
	for i, word := range []string{"a", "b", "c", "d"} {
		require.NoError(t, producer.Send(t.Context(), word, int64(i)))
	}
	require.NoError(t, node.Close(), "closes the producer too")

	node, err = thalweg.Open(dir)
	require.NoError(t, err)
	defer node.Close()
	require.Equal(t, map[string]int64{"a": 0, "b": 1, "c": 2, "d": 3}, readWords(t, node))
}

// Records that are queued when the node closes are sent.
func TestCloseSendsWhatIsQueued(t *testing.T) {
	dir := t.TempDir()
	node, err := thalweg.Open(dir)
	require.NoError(t, err)
	producer, err := node.Producer(words)
	require.NoError(t, err)
	require.NoError(t, producer.Queue(t.Context(), "queued", 7))
	require.NoError(t, node.Close())

	node, err = thalweg.Open(dir)
	require.NoError(t, err)
	defer node.Close()
	require.Equal(t, map[string]int64{"queued": 7}, readWords(t, node))
}

func readWords(t *testing.T, node *thalweg.Node) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for r, err := range node.ReadToEnd(t.Context(), words, topic.Start()) {
		require.NoError(t, err)
		found[r.Key] = r.Value
	}
	return found
}

// A node without a directory works like any other.
func TestNodeInMemory(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	other, err := thalweg.Open("")
	require.NoError(t, err, "each has a memory of its own")
	defer other.Close()
	producer, err := node.Producer(words)
	require.NoError(t, err)
	require.NoError(t, producer.Send(t.Context(), "a", 1))
	require.NoError(t, producer.Close())
	require.Equal(t, map[string]int64{"a": 1}, readWords(t, node))
	require.Empty(t, readWords(t, other))
	require.NoError(t, node.Close())
}

// Every method of a closed node returns ErrClosed, and Close may be repeated, also
// at the same time.
func TestClosedNode(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	require.NoError(t, node.Create(t.Context(), words))
	producer, err := node.Producer(words)
	require.NoError(t, err)
	var closes sync.WaitGroup
	for range 4 {
		closes.Go(func() {
			if err := node.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closes.Wait()

	require.ErrorIs(t, node.Create(t.Context(), words), thalweg.ErrClosed)
	require.ErrorIs(t, node.Delete(t.Context(), words), thalweg.ErrClosed)
	_, err = node.Producer(words)
	require.ErrorIs(t, err, thalweg.ErrClosed)
	require.Nil(t, node.Log())
	for _, err := range node.Read(t.Context(), words, topic.Start()) {
		require.ErrorIs(t, err, thalweg.ErrClosed)
	}
	require.Error(t, producer.Send(t.Context(), "a", 1), "its producer is closed with it")
}

// A reader that waits for more records ends when the node is closed.
func TestCloseEndsReaders(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	producer, err := node.Producer(words)
	require.NoError(t, err)
	require.NoError(t, producer.Send(t.Context(), "a", 1))

	first := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for r, err := range node.Read(context.Background(), words, topic.Start()) {
			if err != nil {
				ended <- err
				return
			}
			if r.Key == "a" {
				close(first)
			}
		}
		ended <- nil
	}()
	<-first
	require.NoError(t, node.Close())
	require.ErrorIs(t, <-ended, thalweg.ErrClosed)
}

// TestDeleteRecords shows that records before a position go from the partitions named,
// or from all of them.
func TestDeleteRecords(t *testing.T) {
	ctx := t.Context()
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	events := topic.New[string, int]("events").Partitions(2).PartitionBy(func(k string, n int) int { return len(k) - 1 })
	p, err := node.Producer(events)
	require.NoError(t, err)
	for i := range 10 {
		_, _, err := p.SendRecord(ctx, topic.Record[string, int]{Key: []string{"a", "bb"}[i%2], Value: i, Time: time.UnixMilli(int64(i))})
		require.NoError(t, err)
	}
	left := func() (values []int) {
		for r, err := range node.ReadToEnd(ctx, events, topic.Start()) {
			require.NoError(t, err)
			values = append(values, r.Value)
		}
		slices.Sort(values)
		return values
	}
	require.NoError(t, node.DeleteRecords(ctx, events, topic.Offset(2), 1))
	require.Equal(t, []int{0, 2, 4, 5, 6, 7, 8, 9}, left())
	require.NoError(t, node.DeleteRecords(ctx, events, topic.Offset(1)))
	require.Equal(t, []int{2, 4, 5, 6, 7, 8, 9}, left(), "what is gone already is no error")
	require.NoError(t, node.DeleteRecords(ctx, events, topic.At(time.UnixMilli(6))))
	require.Equal(t, []int{6, 7, 8, 9}, left())
	outside, is := errors.AsType[*topic.OffsetError](node.DeleteRecords(ctx, events, topic.Offset(6)))
	require.True(t, is)
	require.EqualValues(t, 6, outside.Offset)
	require.NoError(t, node.DeleteRecords(ctx, events, topic.End()))
	require.Empty(t, left())
	require.ErrorIs(t, node.DeleteRecords(ctx, events, topic.End(), 2), log.ErrUnknownTopic)
	require.ErrorIs(t, node.DeleteRecords(ctx, topic.New[string, int]("no"), topic.End()), log.ErrUnknownTopic)
}

// Creating twice is one topic; other settings are refused by name, and Delete
// makes room for them.
func TestCreateAndDelete(t *testing.T) {
	node, err := thalweg.Open(t.TempDir())
	require.NoError(t, err)
	defer node.Close()
	ctx := t.Context()
	require.NoError(t, node.Create(ctx, words))
	require.NoError(t, node.Create(ctx, words))
	err = node.Create(ctx, words.Partitions(4))
	require.ErrorIs(t, err, log.ErrTopicExists)
	require.ErrorContains(t, err, `"words"`)
	_, err = node.Producer(words.Partitions(4))
	require.ErrorIs(t, err, log.ErrTopicExists)

	require.NoError(t, node.Delete(ctx, words))
	require.ErrorIs(t, node.Delete(ctx, words), log.ErrUnknownTopic)
	require.NoError(t, node.Create(ctx, words.Partitions(4)))
}

// Names that could leave the directory, and others that are no names, are refused
// wherever a topic is used.
func TestInvalidTopicNames(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	for _, name := range []string{"", ".", "..", "../words", "a/b", `a\b`, "a b", "a\x00b", "wörter"} {
		invalid := topic.New[string, int64](name)
		require.Error(t, node.Create(t.Context(), invalid), "%q", name)
		_, err := node.Producer(invalid)
		require.Error(t, err, "%q", name)
		var readErr error
		for _, err := range node.ReadToEnd(t.Context(), invalid, topic.Start()) {
			readErr = errors.Join(readErr, err)
		}
		require.Error(t, readErr, "%q", name)
	}
}

// A context that has ended creates and deletes nothing.
func TestCreateWithEndedContext(t *testing.T) {
	node, err := thalweg.Open("")
	require.NoError(t, err)
	defer node.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, node.Create(ctx, words), context.Canceled)
	require.ErrorIs(t, node.Delete(ctx, words), context.Canceled)
	for name := range node.Log().Topics() {
		require.NotEqual(t, words.Name(), name)
	}
}
