package thalweg_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// A job reads a compressed topic and writes its results to another as that one says,
// and after a crash goes on from there.
func TestJobOverCompressedTopics(t *testing.T) {
	in := topic.New[string, string]("in").Compress(log.LZ4)
	out := topic.New[string, string]("out").Compress(log.Zstd)
	app := func() *stream.Topology {
		app := stream.New("shout")
		app.Stream(in).Map(strings.ToUpper).To(out)
		return app
	}
	mem := vfs.NewMem()
	options := thalweg.Options{Log: log.Options{FS: mem}}
	text := strings.Repeat("the river rises ", 10)
	run := func(n int) *thalweg.Node {
		t.Helper()
		node, err := options.Open("data")
		require.NoError(t, err)
		producer, err := node.Producer(in)
		require.NoError(t, err)
		for range n {
			require.NoError(t, producer.Queue(t.Context(), "k", text))
		}
		require.NoError(t, producer.Close())
		job, err := node.Start(t.Context(), app())
		require.NoError(t, err)
		require.NoError(t, job.CatchUp(t.Context()))
		return node
	}
	count := func(node *thalweg.Node) (n int) {
		for r, err := range node.ReadToEnd(t.Context(), out, topic.Start()) {
			require.NoError(t, err)
			require.Equal(t, strings.ToUpper(text), r.Value)
			n++
		}
		return n
	}
	node := run(1000)
	require.Equal(t, 1000, count(node))
	image := mem.Kill()
	require.NoError(t, node.Close())
	options.Log.FS = image
	node = run(10)
	require.Equal(t, 1010, count(node))
	require.NoError(t, node.Close())

	l, err := log.Open("data/log", log.Options{FS: image})
	require.NoError(t, err)
	defer l.Close()
	for name, want := range map[string]log.Compression{"in": log.LZ4, "out": log.Zstd} {
		p, err := l.Partition(log.TopicPartition{Topic: name})
		require.NoError(t, err)
		r := p.Reader(0, log.ReadCommitted)
		b, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, b.Compression, name)
		r.Close()
	}
}
