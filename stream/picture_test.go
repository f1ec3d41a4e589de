package stream_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// A picture shows steps, state, shuffles and stages; of a job also what it has done. The
// expected ones are rewritten with -update.
func TestPicture(t *testing.T) {
	in, out := topic.New[string, int]("in").Partitions(2), topic.New[window.Key[string], int64](`out`)
	app := stream.New("drawn")
	s := app.Stream(in).Filter(func(v int) bool { return v >= 0 })
	s.GroupByKV(func(k string, _ int) string { return k }).Window(window.Tumbling(10 * ms)).Count().As("per-window").To(out)
	s.Join(app.Stream(topic.New[string, int]("other").Partitions(2)), window.Within(time.Second), func(a, b int) int { return a + b }).
		Each(func(_ context.Context, _ topic.Record[string, int]) error { return nil })
	golden(t, "plain.txt", app.Picture().String())
	golden(t, "plain.dot", app.Picture().DOT())
	golden(t, "plain.mmd", app.Picture().Mermaid())
	d := streamtest.New(t, app)
	for i := range 7 {
		d.Input(in).SendAt(at(int64(i*5)), "k", i-2)
	}
	d.Checkpoint()
	p := d.Picture()
	require.True(t, p.Live)
	require.Zero(t, p.Lag)
	golden(t, "live.txt", p.String())
	golden(t, "live.mmd", p.Mermaid())
	require.Contains(t, p.DOT(), `label="job drawn, 0 behind"`)
}

var update = flag.Bool("update", false, "rewrite the expected pictures")

var lineOfTest = regexp.MustCompile(`stream/picture_test\.go:\d+`)

// golden compares got with a file in testdata/picture.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = lineOfTest.ReplaceAllString(got, "picture_test.go:N")
	file := filepath.Join("testdata", "picture", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), got)
}
