package stream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// madeSavepoint is one of two stores, one of them empty and the other of two shards, the
// second in several blocks.
func madeSavepoint(t testing.TB) ([]byte, savepointIndex) {
	var file bytes.Buffer
	w := &savepointWriter{w: &file}
	require.NoError(t, w.write(append([]byte(savepointMagic), savepointVersion)))
	entries := func(n, size int) iter.Seq2[state.Entry, error] {
		return func(yield func(state.Entry, error) bool) {
			for i := range n {
				e := state.Entry{Key: state.StoredKey(fmt.Appendf(nil, "key%06d", i)), Value: append([]byte{1}, bytes.Repeat([]byte{byte(i)}, size)...)}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	x := savepointIndex{job: "job", id: checkpoint.ID{Attempt: 3, N: 17}, at: -5, tasks: []savepointTask{
		{id: checkpoint.TaskID{Stage: "source-in", Shard: 1}, clocks: []byte{1, 2}, inputs: []savepointInput{{topic.TopicPartition{Topic: "in", Partition: 1}, 99}}},
		{id: checkpoint.TaskID{Stage: "counts"}},
	}}
	for _, shards := range [][2]int{{0, 0}, {3, 200}} {
		s := savepointStore{name: fmt.Sprint("store", shards[1])}
		for _, n := range shards {
			places, err := w.shard(entries(n, 1000))
			require.NoError(t, err)
			s.shards = append(s.shards, places)
		}
		x.stores = append(x.stores, s)
	}
	require.NoError(t, w.finish(x))
	return file.Bytes(), x
}

// readAll reads all entries of a savepoint.
func readAll(s *Savepoint) (n int, err error) {
	for _, st := range s.index.stores {
		for _, blocks := range st.shards {
			for _, err := range (savedShard{s.r, blocks}).entries(nil, nil) {
				if err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return n, nil
}

// What is written is what is read, at the places the table of bytes gives, whole or from a key
// to another.
func TestSavepointFormat(t *testing.T) {
	file, want := madeSavepoint(t)
	require.Equal(t, "thalwegS\x01", string(file[:9]))
	require.Equal(t, "thalwegS", string(file[len(file)-8:]))
	s, err := OpenSavepoint(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	require.Equal(t, want.tasks[0], s.index.tasks[0])
	require.Equal(t, []SourcePosition{{"in", 1, 99}}, s.Positions())
	require.Equal(t, []StepState{{Name: "store0", Shards: 2}, {Name: "store200", Shards: 2}}, s.Stores())
	require.Equal(t, checkpoint.ID{Attempt: 3, N: 17}, s.Checkpoint())
	require.EqualValues(t, -5, s.Time().UnixMilli())
	n, err := readAll(s)
	require.NoError(t, err)
	require.Equal(t, 203, n)
	require.Greater(t, len(s.index.stores[1].shards[1]), 2, "several blocks")

	im := savedImage{savedShard{s.r, s.index.stores[1].shards[1]}}
	for i := range 200 {
		v, ok, err := im.Get(fmt.Appendf(nil, "key%06d", i))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 1000), v)
		_, ok, err = im.Get(fmt.Appendf(nil, "key%06dx", i))
		require.NoError(t, err)
		require.False(t, ok)
	}
	at := 63
	for e, err := range im.Range([]byte("key000063"), []byte("key000130")) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("key%06d", at), string(e.Key))
		at++
	}
	require.Equal(t, 130, at)
}

// A file that was cut, or in which any byte is another one, is no savepoint: what a crash or
// a bad disk leaves is not taken for state.
func TestDamagedSavepoint(t *testing.T) {
	file, _ := madeSavepoint(t)
	step := 7
	if testing.Short() {
		step = 97
	}
	for n := 0; n < len(file); n += step {
		_, err := OpenSavepoint(bytes.NewReader(file[:n]), int64(n))
		require.Error(t, err, "cut at %d", n)
		changed := bytes.Clone(file)
		changed[n] ^= 0x10
		s, err := OpenSavepoint(bytes.NewReader(changed), int64(len(file)))
		if err == nil {
			_, err = readAll(s)
		}
		require.True(t, errors.Is(err, ErrSavepoint) || errors.Is(err, state.ErrVersion), "byte %d of %d: %v", n, len(file), err)
	}
}

// An index, whatever is in it, is refused or reads back as it was written; nothing panics and
// nothing is allocated that is not there.
func FuzzSavepointIndex(f *testing.F) {
	_, x := madeSavepoint(f)
	f.Add(x.append(nil))
	f.Add(savepointIndex{}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseSavepointIndex(b, 1<<20)
		if err != nil {
			require.ErrorIs(t, err, ErrSavepoint)
			return
		}
		again, err := parseSavepointIndex(x.append(nil), 1<<20)
		require.NoError(t, err)
		require.Equal(t, x, again)
	})
}

// A file, whatever is in it, is refused or can be read to its end or to an error.
func FuzzSavepoint(f *testing.F) {
	file, _ := madeSavepoint(f)
	f.Add(file)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := OpenSavepoint(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			_, _ = readAll(s)
		}
	})
}
