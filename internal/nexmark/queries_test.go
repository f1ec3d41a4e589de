package nexmark_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// million is the number of events for which the answers' figures are known.
const million = 1_000_000

var (
	howMany = flag.Int64("events", 0, "events that the queries run over, 1,000,000 for instance; 0 is 60,000, or 12,000 with -short")
	kills   = flag.Int("kills", 5, "how often the job of all queries is killed")
)

// events is the input of every query, with the number of the event as key.
var events = topic.New[int64, nexmark.Event]("events").
	Partitions(4).
	PartitionBy(func(number int64, partitions int) int { return int(number % int64(partitions)) }).
	EventTime(nexmark.Event.Time).
	ValueCodec(codec.Struct[nexmark.Event]())

type eventStream = stream.Stream[int64, nexmark.Event]

// input is the stream of events, which each query begins with, and what some need besides.
type input struct {
	eventStream
	app   *stream.Topology
	files files
}

// output is where answers are: a node, and the files beside it.
type output struct {
	*thalweg.Node
	files files
}

// files are where the files of queries that write some are: below a directory of a file system.
type files struct {
	vfs.FS
	dir string
}

// queries are all of them. A query is in the file of its number.
var queries = []tested{
	q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
}

// query is a pipeline, and the definition of its answer: a set of rows, in which a
// row may be more than once.
type query[R comparable] struct {
	name string

	// pipeline declares the query as a user would.
	pipeline func(events input)

	// rows reads the answer from the committed output of the pipeline.
	rows func(t testing.TB, n output) []R

	// answer computes the answer from the events in the order of their ids: slowly,
	// and so that it is obviously right.
	answer func(events []nexmark.Event) []R

	// figures are what is known of the answer beside its number of rows, and million
	// that number and the figures for 1,000,000 events, found by two other programs.
	figures func(rows []R) []int64
	million []int64
}

// tested is a query of any type of row.
type tested interface {
	String() string
	declare(events input)

	// define computes the answer. The function returned compares it with the output
	// of the pipeline.
	define(t testing.TB, events []nexmark.Event) (check func(t testing.TB, n output))
}

func (q query[R]) String() string       { return q.name }
func (q query[R]) declare(events input) { q.pipeline(events) }

func (q query[R]) define(t testing.TB, events []nexmark.Event) (check func(t testing.TB, n output)) {
	want := q.answer(events)
	require.NotEmpty(t, want)
	if len(events) == million {
		figures := []int64{int64(len(want))}
		if q.figures != nil {
			figures = append(figures, q.figures(want)...)
		}
		require.Equal(t, q.million, figures)
	}
	rows, sum := len(want), sumOf(want) // and not the answers themselves, which are large together
	return func(t testing.TB, n output) {
		got := q.rows(t, n)
		if len(got) != rows || sumOf(got) != sum {
			t.Errorf("%d rows instead of %d: %s", len(got), rows, difference(q.answer(events), got))
		}
	}
}

var sumSeed = maphash.MakeSeed()

// sumOf is a checksum of rows in any order.
func sumOf[R comparable](rows []R) (sum uint64) {
	for _, r := range rows {
		sum += maphash.Comparable(sumSeed, r)
	}
	return sum
}

// difference shows some of the rows that one has and the other has not.
func difference[R comparable](want, got []R) string {
	missing := map[R]int{}
	for _, r := range want {
		missing[r]++
	}
	for _, r := range got {
		missing[r]--
	}
	const most = 6
	text, shown := "", 0
	for r, n := range missing {
		if n != 0 && shown < most {
			text += fmt.Sprintf("\n%+d × %+v", -n, r)
			shown++
		}
	}
	return text
}

// answered is a query with the check of its pipeline's output.
type answered struct {
	tested
	check func(t testing.TB, n output)
}

// outOfOrder is the size of the groups within which events are mixed.
const outOfOrder = 1000

// topology is a job of queries, which ends at the end of the events. None of them
// drops a late event, however long a partition is not read.
func topology(files files, queries []answered, disorder, every time.Duration) *stream.Topology {
	app := stream.New("nexmark").
		Checkpoint(checkpoint.Every(every)).
		Disorder(disorder).
		IdleAfter(-1).
		StopAt(topic.End())
	in := input{app.Stream(events), app, files}
	for _, q := range queries {
		q.declare(in)
	}
	return app
}

// The definitions of all answers give the known figures for 1,000,000 events.
func TestDefinitions(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute on a busy machine")
	}
	events := collect(nexmark.Options{}, million)
	for _, q := range queries {
		t.Run(q.String(), func(t *testing.T) { q.define(t, events) })
	}
}

// collect makes the first n events.
func collect(o nexmark.Options, n int64) []nexmark.Event {
	all := make([]nexmark.Event, 0, n)
	for _, e := range nexmark.New(o).Events(0, n) {
		all = append(all, e)
	}
	return all
}

// The answers of all queries are those of their definitions, over events in order and
// out of order, and when the process is killed on the way.
func TestQueries(t *testing.T) {
	n := *howMany
	switch {
	case n > 0:
	case testing.Short():
		n = 12_000
	default:
		n = 60_000
	}
	var running []answered
	// Fewer events come more slowly, so that windows close on the way.
	o := nexmark.Options{EventsPerSecond: min(max(n/25, 400), 10_000)}
	job := func(fs vfs.FS) *stream.Topology {
		return topology(files{FS: fs}, running, time.Duration(outOfOrder*1000/o.EventsPerSecond+1)*time.Millisecond, 50*time.Millisecond)
	}
	sorted := collect(o, n)
	for _, q := range queries {
		require.True(t, t.Run(q.String()+" by definition", func(t *testing.T) {
			running = append(running, answered{q, q.define(t, sorted)})
		}))
	}

	t.Run("in order", func(t *testing.T) {
		fs := filled(t, o, n)
		require.NoError(t, runJob(fs, job(fs)))
		checkAll(t, fs, running)
	})
	o.OutOfOrder = outOfOrder
	mixed := filled(t, o, n)
	var operations int64
	require.True(t, t.Run("out of order", func(t *testing.T) {
		fs := mixed.Kill()
		require.NoError(t, runJob(fs, job(fs)))
		operations = fs.Ops()
		checkAll(t, fs, running)
	}))
	t.Run("killed", func(t *testing.T) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d, %d file operations", seed, operations)
		rng := rand.New(rand.NewPCG(seed, 0))
		fs := mixed.Kill()
		killed := 0
		for range *kills {
			fs.StopAt(1 + rng.Int64N(max(1, 2*operations/int64(*kills))))
			err := runJob(fs, job(fs))
			if err == nil && killed > 0 {
				break
			}
			if err == nil { // a faster run than the one whose operations were counted
				fs, operations = mixed.Kill(), operations/2
				continue
			}
			require.ErrorIs(t, err, vfs.ErrStopped)
			killed++
			fs = fs.Kill()
		}
		t.Logf("killed %d times", killed)
		require.Positive(t, killed)
		require.NoError(t, runJob(fs, job(fs)))
		checkAll(t, fs, running)
	})
}

// open opens the node in a file system.
func open(fs *vfs.Mem) (*thalweg.Node, error) {
	return thalweg.Options{Log: log.Options{FS: fs, SegmentBytes: 4 << 20, MaxBatchBytes: 2 << 20}}.Open("node")
}

// filled returns a file system with a node that holds n events.
func filled(t *testing.T, o nexmark.Options, n int64) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	node, err := open(fs)
	require.NoError(t, err)
	p, err := node.Producer(events)
	require.NoError(t, err)
	for number, e := range nexmark.New(o).Events(0, n) {
		require.NoError(t, p.Queue(t.Context(), number, e))
	}
	require.NoError(t, p.Close())
	fillSide(t, node)
	require.NoError(t, node.Close())
	return fs
}

// runJob runs the job to the end of the events, or until the file system stops.
func runJob(fs *vfs.Mem, app *stream.Topology) error {
	node, err := open(fs)
	if err != nil {
		return err
	}
	return errors.Join(node.Run(context.Background(), app), node.Close())
}

func checkAll(t *testing.T, fs *vfs.Mem, queries []answered) {
	t.Helper()
	node, err := open(fs)
	require.NoError(t, err)
	defer node.Close()
	for _, q := range queries {
		t.Run(q.String(), func(t *testing.T) { q.check(t, output{node, files{FS: fs}}) })
	}
}

// records are the committed records of a topic.
func records[K, V any](t testing.TB, n output, from topic.Topic[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for r, err := range n.ReadToEnd(t.Context(), from, topic.Start()) {
			require.NoError(t, err)
			if !yield(r.Key, r.Value) {
				return
			}
		}
	}
}

// values reads an answer whose rows are the values of a topic.
func values[K, V any](from topic.Topic[K, V]) func(testing.TB, output) []V {
	return func(t testing.TB, n output) (all []V) {
		for _, v := range records(t, n, from) {
			all = append(all, v)
		}
		return all
	}
}

// newest reads an answer whose rows are the newest values of the keys of a topic.
func newest[K comparable, V any](t testing.TB, n output, from topic.Topic[K, V]) map[K]V {
	return maps.Collect(records(t, n, from))
}
