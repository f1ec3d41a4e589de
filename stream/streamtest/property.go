package streamtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// DefaultRuns is how often Same runs a pipeline besides the plain run.
const DefaultRuns = 20

// SeedVariable is the environment variable that has Same repeat one run: that of the seed
// which a failure has printed.
const SeedVariable = "STREAMTEST_SEED"

// Options says how Same runs a pipeline. The zero value suits most.
type Options struct {
	// Runs is how many runs are compared with the plain one. Zero means DefaultRuns.
	Runs int

	// Seed decides what happens in the first run; each further one has the next. Zero takes one
	// by the clock.
	Seed uint64

	// MaxPartitions bounds what Run.Partitions gives. Zero means 4.
	MaxPartitions int
}

// Same runs a pipeline again and again and fails the test when what it commits is not
// always the same. f builds the topology for a run, sends the input and says what is to
// be compared:
//
//	streamtest.Same(t, streamtest.Options{}, func(r *streamtest.Run) {
//		in := clicks.Partitions(r.Partitions())
//		app := stream.New("clicks")
//		app.Stream(in).GroupBy(user).Window(window.Tumbling(time.Minute)).Count().To(perMinute)
//		d := r.Driver(app)
//		for _, c := range input {
//			d.Input(in).SendAt(c.At, c.ID, c)
//		}
//		d.Watermark(end)
//		r.Records(perMinute)
//	})
//
// The first run is plain: topics with one partition, all input read at once, one
// checkpoint at the end. In every other run the partitions, which task works when, how much
// it does between two records, when checkpoints are taken and where the process crashes
// are up to a seed.
//
// What differs then depends on something it must not depend on: the order in which records of several
// keys or partitions are read, in a fold that is not commutative; what a function remembers
// outside of the state; late records, where the disorder in the input is more than
// the topology allows. A failure prints the seed of its run; SeedVariable set to it repeats
// that run alone.
func Same(tb testing.TB, o Options, f func(r *Run)) {
	tb.Helper()
	runs, seed := o.Runs, o.Seed
	if runs == 0 {
		runs = DefaultRuns
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("streamtest: %s: %v", SeedVariable, err)
		}
		runs = 1
	}
	plain := &Run{tb: tb, partitions: 1}
	plain.do(f)
	if len(plain.outputs) == 0 {
		tb.Fatalf("streamtest: nothing is compared: call Records, Unordered or Latest of the Run")
	}
	for i := range uint64(runs) {
		r := newRun(tb, seed+i, o.MaxPartitions)
		r.do(f)
		r.compare(plain)
	}
}

// Run is one run of a pipeline by Same.
type Run struct {
	tb         testing.TB
	seed       uint64
	chaos      *chaos // nil in the plain run
	partitions int
	driver     *Driver
	outputs    []compared
}

// compared is what a run has committed to a topic, in a form that can be compared.
type compared struct {
	what string
	rows map[string][]string // by key
}

func newRun(tb testing.TB, seed uint64, maxPartitions int) *Run {
	if maxPartitions <= 0 {
		maxPartitions = 4
	}
	c := newChaos(seed)
	return &Run{tb: tb, seed: seed, partitions: 1 + c.rng.IntN(maxPartitions), chaos: c}
}

// do makes the run.
func (r *Run) do(f func(*Run)) {
	defer func() {
		if r.chaos != nil && r.tb.Failed() {
			r.tb.Logf("streamtest: in the run with %s=%d: %s", SeedVariable, r.seed, r.story())
		}
		if r.driver != nil {
			r.driver.release()
		}
	}()
	f(r)
}

// story tells what a run was like.
func (r *Run) story() string {
	return fmt.Sprintf("topics of %d partitions, and for each 100 records sent about %d crashes, %d checkpoints and %d times some steps of tasks",
		r.partitions, r.chaos.crashes, r.chaos.checkpoints, r.chaos.steps)
}

// Partitions is how many partitions the topics of the run are to have.
func (r *Run) Partitions() int { return r.partitions }

// Driver starts the topology of the run. It can be called once in a run. What the Driver is
// asked to do it does; crashes, checkpoints and steps between come on top. A watermark set by hand
// is committed at once, so that no crash takes it back.
func (r *Run) Driver(app *stream.Topology) *Driver {
	r.tb.Helper()
	if r.driver != nil {
		r.tb.Fatalf("streamtest: a run has one driver")
	}
	r.driver = newDriver(r.tb, app, r.chaos)
	return r.driver
}

// Records compares all records of a topic the pipeline writes: values, times and order of those of
// each key. Between keys there is no order.
func (r *Run) Records[K, V any](t topic.Topic[K, V]) {
	r.tb.Helper()
	r.add("Records of "+t.Name(), t, func(rows []string) []string { return rows })
}

// Unordered compares all records of a topic, whatever their order.
func (r *Run) Unordered[K, V any](t topic.Topic[K, V]) {
	r.tb.Helper()
	r.add("Unordered records of "+t.Name(), t, func(rows []string) []string {
		slices.Sort(rows)
		return rows
	})
}

// Latest compares the newest value of each key of a topic, which for a table is all that
// does not depend on when checkpoints are taken. A key that was deleted is as one that never was.
func (r *Run) Latest[K, V any](t topic.Topic[K, V]) {
	r.tb.Helper()
	r.add("Latest of "+t.Name(), t, func(rows []string) []string {
		newest, _, _ := strings.Cut(rows[len(rows)-1], timeSeparator)
		if newest == deletedRow {
			return nil
		}
		return []string{newest}
	})
}

const (
	deletedRow    = "deleted"
	timeSeparator = " at "
)

// add reads a topic, and keeps of each key what take makes of its rows.
func (r *Run) add[K, V any](what string, t topic.Topic[K, V], take func(rows []string) []string) {
	r.tb.Helper()
	if r.driver == nil {
		r.tb.Fatalf("streamtest: %s: start the pipeline with Driver first", what)
	}
	keys, values, err := t.Codecs(nil)
	if err != nil {
		r.tb.Fatalf("streamtest: %s: %v", what, err)
	}
	c := compared{what: what, rows: make(map[string][]string)}
	for _, rec := range r.driver.Output(t).Records() {
		key, row := "no key", deletedRow
		if !rec.NoKey {
			encoded, err := keys.Append(nil, rec.Key)
			if err != nil {
				r.tb.Fatalf("streamtest: %s: encode key: %v", what, err)
			}
			key = fmt.Sprintf("key %v (%x)", rec.Key, encoded)
		}
		if !rec.Deleted {
			encoded, err := values.Append(nil, rec.Value)
			if err != nil {
				r.tb.Fatalf("streamtest: %s: encode value: %v", what, err)
			}
			row = fmt.Sprintf("%+v (%x)", rec.Value, encoded)
		}
		c.rows[key] = append(c.rows[key], row+timeSeparator+rec.Time.Format(time.RFC3339Nano))
	}
	for key, rows := range c.rows {
		if rows = take(rows); len(rows) == 0 {
			delete(c.rows, key)
		} else {
			c.rows[key] = rows
		}
	}
	r.outputs = append(r.outputs, c)
}

// compare fails the test where the run differs from the plain one.
func (r *Run) compare(plain *Run) {
	r.tb.Helper()
	if len(r.outputs) != len(plain.outputs) {
		r.tb.Fatalf("streamtest: the run compares %d topics and the plain run %d: compare the same in each", len(r.outputs), len(plain.outputs))
	}
	for i, got := range r.outputs {
		if diff := got.differs(plain.outputs[i]); diff != "" {
			r.tb.Fatalf("streamtest: the pipeline gives something else than in the plain run, which has one partition, no crash and one checkpoint.\n"+
				"%s\nThe run had %s.\nTo repeat it alone set %s=%d.", diff, r.story(), SeedVariable, r.seed)
		}
	}
}

// differs describes the first difference, by key; empty where there is none.
func (c compared) differs(plain compared) string {
	keys := make([]string, 0, len(c.rows))
	for key := range c.rows {
		keys = append(keys, key)
	}
	for key := range plain.rows {
		if _, ok := c.rows[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if got, want := c.rows[key], plain.rows[key]; !slices.Equal(got, want) {
			i := 0
			for i < len(got) && i < len(want) && got[i] == want[i] {
				i++
			}
			return fmt.Sprintf("%s, %s: %d records, %d in the plain run; from record %d on\n  here  %s\n  plain %s",
				c.what, key, len(got), len(want), i, few(got[i:]), few(want[i:]))
		}
	}
	return ""
}

// few are the first of some rows.
func few(rows []string) string {
	const most = 5
	if len(rows) > most {
		return strings.Join(rows[:most], ", ") + ", …"
	}
	if len(rows) == 0 {
		return "nothing"
	}
	return strings.Join(rows, ", ")
}

// chaos decides what happens besides what a test asks for. Each number is out of 100, for
// each record sent.
type chaos struct {
	rng         *rand.Rand
	crashes     int
	checkpoints int
	steps       int
}

func newChaos(seed uint64) *chaos {
	rng := rand.New(rand.NewPCG(seed, 1))
	// Some runs are crowded with each kind of disturbance, others have none of it.
	often := func(most int) int { return rng.IntN(2) * rng.IntN(most+1) }
	return &chaos{rng: rng, crashes: often(10), checkpoints: often(40), steps: often(60)}
}

// Disturb has a seed decide from now on which task works when, and after which of the records
// that are sent tasks work for a while, checkpoints begin and the process crashes. What the test
// asks for happens as well; a watermark set by hand is committed at once, so that no crash
// takes it back. Call it before the job starts, which it does when it is first asked to work.
func (d *Driver) Disturb(seed uint64) { d.chaos = newChaos(seed) }

// pick is Env.Pick; nil without chaos.
func (c *chaos) pick() func(n int) int {
	if c == nil {
		return nil
	}
	return c.rng.IntN
}

// disturb does what the seed has between two records.
func (d *Driver) disturb() {
	c := d.chaos
	if c == nil || d.failure != nil {
		return
	}
	d.tb.Helper()
	if c.rng.IntN(100) < c.steps {
		d.start()
		for range 1 + c.rng.IntN(20) {
			worked, err := d.job.Step()
			if err != nil {
				d.failure = err
				d.tb.Fatalf("streamtest: the job failed: %v", err)
			}
			if !worked {
				break
			}
		}
	}
	if c.rng.IntN(100) < c.checkpoints {
		d.start()
		d.job.Trigger() // it completes whenever the tasks come to it
	}
	if c.rng.IntN(100) < c.crashes {
		if c.rng.IntN(4) == 0 { // what is on the way to the disk may get there
			_ = d.plane.SyncAll(context.Background())
		}
		d.Crash()
	}
}
