package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// namedEntries are entries of every kind of named producers.
func namedEntries() []entry {
	return []entry{
		namedProducer{"orders/b"}, namedProducer{"orders/a"}, namedProducer{"orders/b"}, forgetProducer{"none"},
		namedProducer{"orders/c"}, forgetProducer{"orders/c"},
	}
}

func TestNamedProducerEntriesDecodeToWhatWasEncoded(t *testing.T) {
	for _, e := range namedEntries() {
		got, err := decodeEntry(encodeEntry(nil, e))
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

// The bytes of named producers are part of the format.
func TestFormatOfNamedProducersStaysAsItIs(t *testing.T) {
	var got bytes.Buffer
	l := newMetaLog()
	for _, e := range namedEntries() {
		fmt.Fprintf(&got, "%x\n", encodeEntry(nil, e))
		l.apply(e)
	}
	b := encodeSnapshot(nil, l.m)
	fmt.Fprintf(&got, "snapshot %x\n", b)
	golden(t, "testdata/format/named_producers.v1.hex", got.Bytes())

	again, err := decodeSnapshot(b, 5)
	require.NoError(t, err)
	require.Equal(t, l.m.named, again.named)
}

// A name has one id for good; it outlives the process as no other owner does.
func TestNamedProducersOutliveTheProcess(t *testing.T) {
	l := newMetaLog()
	a := l.apply(namedProducer{"a"})
	require.NoError(t, a.err)
	again := l.apply(namedProducer{"a"})
	require.Equal(t, result{first: a.first, repeat: true}, again)
	plain := l.apply(producerBegin{})
	require.Equal(t, a.first+1, plain.first)
	c := l.m.clone()
	l.apply(nodeStart{})
	first, over, known := l.m.owner(a.first)
	require.Equal(t, []any{a.first, false, true}, []any{first, over, known})
	require.Equal(t, refuse, l.m.admits(plain.first))
	l.apply(forgetProducer{"a"})
	require.Equal(t, refuse, l.m.admits(a.first))
	require.NotEqual(t, a.first, l.apply(namedProducer{"a"}).first, "ids are never handed out twice")
	require.Equal(t, admit, c.admits(a.first), "a clone is independent")
}

// A name is held by one at a time, keeps its id over restarts for as long as a
// partition remembers it, and is forgotten then.
func TestAcquireNamedProducer(t *testing.T) {
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	require.NoError(t, p.Log().Create("t", log.TopicSpec{Partitions: 1}))
	acquire := func(name string) log.ProducerID {
		t.Helper()
		id, err := p.AcquireNamedProducer(t.Context(), name)
		require.NoError(t, err)
		return id
	}
	a, b := acquire("a"), acquire("b")
	require.NotEqual(t, a, b)
	_, err = p.AcquireNamedProducer(t.Context(), "a")
	require.ErrorIs(t, err, ErrProducerOpen)
	require.NoError(t, p.ReleaseProducer(a))
	require.Equal(t, a, acquire("a"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.AcquireNamedProducer(ended, "c")
	require.ErrorIs(t, err, context.Canceled)

	part, err := p.Log().Partition(log.TopicPartition{Topic: "t"})
	require.NoError(t, err)
	var batch log.BatchBuilder
	batch.Add(0, nil, []byte("x"), nil)
	_, err = part.Write(batch.Finish(log.Producer{ID: a}))
	require.NoError(t, err)

	after := fs.Kill()
	fs.Stop()
	_ = p.Close()
	p, err = openPlane(after)
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, a, acquire("a"))
	require.NotEqual(t, b, acquire("b"), "nothing remembers b")
	part, err = p.Log().Partition(log.TopicPartition{Topic: "t"})
	require.NoError(t, err)
	again, err := part.Write(batch.Finish(log.Producer{ID: a}))
	require.NoError(t, err)
	require.True(t, again.Duplicate)
}
