package filesink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/filesink"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

type click struct {
	User string `json:"user"`
	N    int    `json:"n"`
}

var clicks = topic.New[string, click]("clicks").Partitions(2)

// files reads all finished files below dir.
func files(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var walk func(dir, rel string)
	walk = func(dir, rel string) {
		names, err := fsys.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		require.NoError(t, err)
		for _, name := range names {
			if name == ".thalweg" {
				continue
			}
			at := path.Join(dir, name)
			f, err := fsys.Open(at)
			if err != nil {
				walk(at, path.Join(rel, name))
				continue
			}
			size, err := f.Size()
			require.NoError(t, err)
			b := make([]byte, size)
			if _, err := f.ReadAt(b, 0); err != nil { // a directory
				require.NoError(t, f.Close())
				walk(at, path.Join(rel, name))
				continue
			}
			require.NoError(t, f.Close())
			found[path.Join(rel, name)] = string(b)
		}
	}
	walk(dir, "")
	return found
}

// Records go to folders by event time; a file becomes visible when it is finished: at its
// size, or at the end of the run.
func TestFilesByTimeAndSize(t *testing.T) {
	dir := t.TempDir()
	in := topic.New[string, click]("clicks")
	app := stream.New("job")
	app.Stream(in).Sink(filesink.Options[string, click]{Dir: dir, Encode: filesink.JSON[string, click](), Suffix: ".ndjson", MaxBytes: 40,
		Folder: filesink.ByTime[string, click]("2006-01-02")}.Sink()).As("files")
	d := streamtest.New(t, app)
	day := 24 * time.Hour
	send := d.Input(in)
	for i, at := range []time.Duration{0, day, 0, 0, day} {
		send.SendAt(streamtest.Epoch.Add(at), "k", click{"a", i})
	}
	d.Checkpoint()
	require.Empty(t, files(t, vfs.OS(), filepath.ToSlash(dir)), "written, and not committed")
	d.Checkpoint()
	require.Equal(t, map[string]string{
		"2000-01-01/job-files-0-0.ndjson": `{"user":"a","n":0}` + "\n" + `{"user":"a","n":2}` + "\n" + `{"user":"a","n":3}` + "\n",
	}, files(t, vfs.OS(), filepath.ToSlash(dir)))
	d.Crash()
	d.Checkpoint()
	require.Len(t, files(t, vfs.OS(), filepath.ToSlash(dir)), 1)
}

// The formats, headers, records without a value, and a record an Encode leaves out.
func TestFormats(t *testing.T) {
	type out = stream.Output[string, click]
	for name, c := range map[string]struct {
		o    filesink.Options[string, click]
		want string
	}{
		"text": {filesink.Options[string, click]{Encode: filesink.Text[string](func(c click) string { return c.User })}, "a\nb,\"c\n"},
		"csv": {filesink.Options[string, click]{Header: filesink.Row("user", "n"), Encode: filesink.CSV(func(r out) []string {
			if r.Deleted {
				return nil
			}
			return []string{r.Value.User, fmt.Sprint(r.Value.N)}
		})}, "user,n\na,1\n\"b,\"\"c\",2\n"},
		"json": {filesink.Options[string, click]{Encode: filesink.JSON[string, click]()}, "{\"user\":\"a\",\"n\":1}\n{\"user\":\"b,\\\"c\",\"n\":2}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.Dir, o.FS = "out", vfs.NewMem()
			o.Folder = func(out) string { return "" }
			s := openSink(t, o)
			ctx := t.Context()
			require.NoError(t, s.Abort(ctx))
			require.NoError(t, s.Write(ctx, []out{{ID: "j/s/0/0", Value: click{"a", 1}}, {ID: "j/s/0/1", Deleted: true}, {ID: "j/s/0/2", Value: click{"b,\"c", 2}}}))
			handle, err := s.Prepare(ctx)
			require.NoError(t, err)
			require.NoError(t, s.Commit(ctx, handle))
			handle, err = s.Prepare(ctx)
			require.NoError(t, err)
			require.Empty(t, handle, "nothing new")
			require.NoError(t, s.Close())
			require.Equal(t, map[string]string{"j-s-0-0": c.want}, files(t, o.FS, "out"))
		})
	}
}

type closing interface {
	stream.TxSink[string, click]
	Close() error
}

func openSink(t *testing.T, o filesink.Options[string, click]) closing {
	t.Helper()
	s, err := o.Sink().(stream.Opener[string, click]).Open(stream.SinkPartition{Job: "j", Name: "s"})
	require.NoError(t, err)
	return s.(closing)
}

// Age finishes a file that nothing is written to any more, and one whose last bytes are being
// committed when its time comes.
func TestFilesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := filesink.Options[string, click]{Dir: "out", FS: vfs.NewMem(), MaxAge: time.Minute, Encode: filesink.JSON[string, click](),
			Folder: func(r stream.Output[string, click]) string { return r.Value.User }}
		s, ctx := openSink(t, o), t.Context()
		require.NoError(t, s.Abort(ctx))
		write := func(user string, n int) {
			require.NoError(t, s.Write(ctx, []stream.Output[string, click]{{ID: fmt.Sprint("j/s/0/", n), Value: click{user, n}}}))
		}
		write("a", 1)
		handle, err := s.Prepare(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, handle))
		time.Sleep(30 * time.Second)
		require.Empty(t, files(t, o.FS, "out"))
		write("b", 2)
		time.Sleep(31 * time.Second)
		require.Len(t, files(t, o.FS, "out"), 1, "a")
		handle, err = s.Prepare(ctx)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		require.Len(t, files(t, o.FS, "out"), 1, "b does not count yet")
		require.NoError(t, s.Commit(ctx, handle))
		require.Len(t, files(t, o.FS, "out"), 2)
		require.NoError(t, s.Close())
	})
}

// No more files than MaxOpen are open; the oldest goes.
func TestMaxOpenFiles(t *testing.T) {
	o := filesink.Options[string, click]{Dir: "out", FS: vfs.NewMem(), MaxOpen: 2, Encode: filesink.JSON[string, click](),
		Folder: func(r stream.Output[string, click]) string { return r.Value.User }}
	s, ctx := openSink(t, o), t.Context()
	require.NoError(t, s.Abort(ctx))
	for i, user := range []string{"a", "b", "c", "a"} {
		require.NoError(t, s.Write(ctx, []stream.Output[string, click]{{ID: fmt.Sprint("j/s/0/", i), Value: click{user, i}}}))
		time.Sleep(time.Millisecond) // files differ in age
	}
	handle, err := s.Prepare(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, handle))
	require.Equal(t, []string{"a/j-s-0-0", "b/j-s-0-1"}, slices.Sorted(keys(files(t, o.FS, "out"))))
	require.NoError(t, s.Close())
	require.Len(t, files(t, o.FS, "out"), 4)
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Options that cannot be, and folders that lead out of Dir, are errors.
func TestMistakes(t *testing.T) {
	ok := filesink.Options[string, click]{Dir: "out", FS: vfs.NewMem(), Encode: filesink.JSON[string, click]()}
	for want, change := range map[string]func(o *filesink.Options[string, click]){
		"Dir is empty":         func(o *filesink.Options[string, click]) { o.Dir = "" },
		"Encode is nil":        func(o *filesink.Options[string, click]) { o.Encode = nil },
		"has a slash":          func(o *filesink.Options[string, click]) { o.Suffix = "/x" },
		"MaxBytes is negative": func(o *filesink.Options[string, click]) { o.MaxBytes = -1 },
		"MaxOpen is negative":  func(o *filesink.Options[string, click]) { o.MaxOpen = -1 },
	} {
		o := ok
		change(&o)
		_, err := o.Sink().(stream.Opener[string, click]).Open(stream.SinkPartition{})
		require.ErrorContains(t, err, want)
	}
	require.Error(t, ok.Sink().Write(t.Context(), nil))
	for _, folder := range []string{"../x", "/x", "a//b", ".thalweg", ".thalweg/x", "a/../..", `a\b`, "."} {
		o := ok
		o.Folder = func(stream.Output[string, click]) string { return folder }
		s := openSink(t, o)
		require.NoError(t, s.Abort(t.Context()))
		require.ErrorContains(t, s.Write(t.Context(), []stream.Output[string, click]{{ID: "x"}}), "no folder below Dir", folder)
		require.NoError(t, s.Close())
	}
}

const records = 150

func run(fsys *vfs.Mem, sink stream.Sink[string, click]) (ended bool) {
	o := checkpoint.PlaneOptions{FS: fsys, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = 32<<10, 256<<10
	plane, err := checkpoint.Open("node", o)
	if err != nil {
		return false
	}
	defer plane.Close()
	app := stream.New("job").StopAt(topic.End())
	app.Stream(clicks).Sink(sink).As("files").Batch(8)
	now := time.UnixMilli(0)
	job, err := stream.StartManual(context.Background(), stream.Env{Plane: plane, Backend: state.Memory(), StateDir: "state",
		Now: func() time.Time { return now }}, app)
	if err != nil {
		return false
	}
	defer job.Kill()
	for i := 1; !job.Ended(); i++ {
		now = now.Add(50 * time.Millisecond)
		if _, err := job.Step(); err != nil || i > 3000 {
			return false
		}
		if i%3 == 0 {
			job.Trigger()
		}
	}
	return true
}

// check reads what a reader sees, whole lines of whole files, and returns how often each
// record is there.
func check(t *testing.T, fsys vfs.FS, msg ...any) map[int]int {
	t.Helper()
	seen := map[int]int{}
	for name, text := range files(t, fsys, "out") {
		require.True(t, strings.HasPrefix(text, "# clicks\n"), msg...)
		require.True(t, strings.HasSuffix(text, "\n"), msg...)
		last := map[string]int{}
		for line := range strings.Lines(strings.TrimPrefix(text, "# clicks\n")) {
			var c click
			require.NoError(t, json.Unmarshal([]byte(line), &c), msg...)
			require.Equal(t, fmt.Sprint("h", c.N/40), path.Dir(name), msg...)
			require.GreaterOrEqual(t, c.N, last[c.User], msg...)
			last[c.User] = c.N
			seen[c.N]++
		}
	}
	for n, times := range seen {
		require.Equal(t, 1, times, "record %d: %v", n, msg)
	}
	return seen
}

const everyOp = 37

// A job that ends at any one file operation, by kill or by a power cut, whatever the topics
// sync, leaves only whole files with records that are in no other, and its next run brings the
// rest.
func TestStoppedAtEveryFileOperation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	base := vfs.NewMem()
	plane, err := checkpoint.Open("node", checkpoint.PlaneOptions{FS: base, SyncInterval: -1, Log: log.Options{SegmentBytes: 32 << 10, MaxBatchBytes: 256 << 10}})
	require.NoError(t, err)
	require.NoError(t, plane.Log().Create(clicks.Name(), clicks.Spec()))
	for i := range records {
		p, err := plane.Log().Partition(log.TopicPartition{Topic: clicks.Name(), Partition: log.PartitionID(i % 7 % 2)})
		require.NoError(t, err)
		value, err := json.Marshal(click{fmt.Sprint(i % 7), i})
		require.NoError(t, err)
		_, err = p.AppendRecords(t.Context(), log.Record{Key: fmt.Append(nil, i%7), Value: value})
		require.NoError(t, err)
	}
	require.NoError(t, plane.SyncAll(t.Context()))
	require.NoError(t, plane.Close())

	sink := func(fsys vfs.FS) stream.Sink[string, click] {
		return filesink.Options[string, click]{Dir: "out", FS: fsys, MaxBytes: 300, MaxAge: -1, MaxOpen: 2, Header: []byte("# clicks\n"),
			Encode: filesink.JSON[string, click](), Folder: func(r stream.Output[string, click]) string { return fmt.Sprint("h", r.Value.N/40) }}.Sink()
	}
	whole := base.Kill()
	require.True(t, run(whole, sink(whole)))
	require.Len(t, check(t, whole), records)
	total := whole.Ops()
	t.Logf("%d operations", total)
	step := int64(everyOp)
	if testing.Short() {
		step *= 3
	}
	for name, crash := range map[string]func(*vfs.Mem) *vfs.Mem{
		"kill":      func(fsys *vfs.Mem) *vfs.Mem { return fsys.Kill() },
		"power cut": func(fsys *vfs.Mem) *vfs.Mem { return fsys.Crash(rng.Uint64()) },
	} {
		for stop := 1 + rng.Int64N(step); stop <= total; stop += step {
			fsys := base.Kill()
			fsys.StopAt(stop)
			run(fsys, sink(fsys))
			fsys = crash(fsys)
			check(t, fsys, name, "at operation", stop)
			require.True(t, run(fsys, sink(fsys)), "%s at operation %d", name, stop)
			require.Len(t, check(t, fsys, name, "at operation", stop), records, "%s at operation %d", name, stop)
		}
	}
}
