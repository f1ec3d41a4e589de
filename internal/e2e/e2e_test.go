package e2e

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// openNode opens a node in a directory of its own, closed when the test ends.
func openNode(t *testing.T) *thalweg.Node {
	t.Helper()
	node, err := thalweg.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

// send sends rows in their order, each under its key.
func send[K, V any](t *testing.T, node *thalweg.Node, to topic.Topic[K, V], rows []V, key func(V) K) {
	t.Helper()
	producer, err := node.Producer(to)
	require.NoError(t, err)
	for _, row := range rows {
		require.NoError(t, producer.Queue(t.Context(), key(row), row))
	}
	require.NoError(t, producer.Flush(t.Context()))
	require.NoError(t, producer.Close())
}

// run runs app to the end of its sources.
func run(t *testing.T, node *thalweg.Node, app *stream.Topology) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, node.Run(ctx, app))
	require.NoError(t, ctx.Err(), "the run ended by itself")
}

// results reads the committed results of windows, each key in a window once. The
// keys of the map have their times in UTC.
func results[K comparable, V any](t *testing.T, node *thalweg.Node, from topic.Topic[window.Key[K], V]) map[window.Key[K]]V {
	t.Helper()
	found := map[window.Key[K]]V{}
	for r, err := range node.ReadToEnd(t.Context(), from, topic.Start()) {
		require.NoError(t, err)
		key := window.Key[K]{Key: r.Key.Key, Start: r.Key.Start.UTC(), End: r.Key.End.UTC()}
		_, twice := found[key]
		require.False(t, twice, "two results of %v", key)
		found[key] = r.Value
	}
	return found
}

// windowKey is the key of a row of the known answers.
func windowKey[K any](t *testing.T, row map[string]string, key K) window.Key[K] {
	return window.Key[K]{
		Key:   key,
		Start: time.UnixMilli(integer(t, row["window_start_ms"])).UTC(),
		End:   time.UnixMilli(integer(t, row["window_end_ms"])).UTC(),
	}
}

// openData opens a file in testdata, which may be compressed.
func openData(t *testing.T, name string) io.Reader {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	if filepath.Ext(name) != ".gz" {
		return file
	}
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	return text
}

// lines returns the lines of a file in testdata.
func lines(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	scanner := bufio.NewScanner(openData(t, name))
	for scanner.Scan() {
		all = append(all, scanner.Text())
	}
	require.NoError(t, scanner.Err())
	return all
}

// expected returns the rows of a known answer, by column.
func expected(t *testing.T, name string) []map[string]string {
	t.Helper()
	all, err := csv.NewReader(openData(t, filepath.Join("expected", name))).ReadAll()
	require.NoError(t, err)
	rows := make([]map[string]string, len(all)-1)
	for i := range rows {
		rows[i] = map[string]string{}
		for column, name := range all[0] {
			rows[i][name] = all[i+1][column]
		}
	}
	return rows
}

func integer(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}
