package log

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
)

// TestOnAdvanceTellsMoreThanAdvances shows that callbacks also hear of deleted records
// and of the end of a partition, and so does who waits for topics.
func TestOnAdvanceTellsMoreThanAdvances(t *testing.T) {
	l := mustOpen(t, small(vfs.NewMem()))
	defer l.Close()
	changed := l.TopicsChanged()
	require.NoError(t, l.Create("t", TopicSpec{Partitions: 2}))
	<-changed
	var calls [2]atomic.Int64
	var parts [2]*Partition
	for i := range parts {
		var err error
		parts[i], err = l.Partition(TopicPartition{Topic: "t", Partition: PartitionID(i)})
		require.NoError(t, err)
		defer parts[i].OnAdvance(func() { calls[i].Add(1) })()
		_, err = parts[i].AppendRecords(t.Context(), Record{Value: []byte("x")})
		require.NoError(t, err)
	}
	before := calls[0].Load()
	require.NoError(t, parts[0].DeleteBefore(1))
	require.Greater(t, calls[0].Load(), before)
	before = calls[1].Load()
	_ = parts[1].fail(errors.New("disk on fire"))
	require.Greater(t, calls[1].Load(), before)
	before = calls[0].Load()
	changed = l.TopicsChanged()
	require.NoError(t, l.Delete("t"))
	<-changed
	require.Greater(t, calls[0].Load(), before)
}

func TestEndOfEpoch(t *testing.T) {
	e := epochs{{Epoch: 1, Start: 10}, {Epoch: 4, Start: 30}}
	for epoch, want := range map[LeaderEpoch]Offset{0: 10, 1: 30, 2: 30, 3: 30, 4: 50, 9: 50} {
		require.Equal(t, want, e.endOf(epoch, 50), "epoch %d", epoch)
	}
	require.Equal(t, Offset(50), epochs(nil).endOf(0, 50))
}
