package streamtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// Driver runs one topology. A mistake in the topology and a failed job fail the
// test at once, unless the failure was awaited with Failure. Not for concurrent use.
type Driver struct {
	tb      testing.TB
	app     *stream.Topology
	fs      *vfs.Mem
	elapsed atomic.Int64 // ns since Epoch; written by the test, read by what the node does in the background too
	plane   *checkpoint.Plane
	job     *stream.Manual
	failure error
	closers []func() error // of the producers on the present plane
	chaos   *chaos         // what happens besides; nil for nothing
}

// Epoch is where virtual time begins.
var Epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Segments of a test are small: each is memory of its own.
const (
	segmentBytes  = 256 << 10
	maxBatchBytes = 2 << 20
)

// New validates the topology and makes an empty node for it. The job starts when the
// pipeline is first asked to work, so that what is sent before is in the log when it
// begins. Everything is released when the test ends.
func New(tb testing.TB, app *stream.Topology) *Driver {
	tb.Helper()
	d := newDriver(tb, app, nil)
	tb.Cleanup(d.release)
	return d
}

// newDriver is New for whoever releases the driver.
func newDriver(tb testing.TB, app *stream.Topology, c *chaos) *Driver {
	tb.Helper()
	if err := app.Validate(); err != nil {
		tb.Fatalf("streamtest: %v", err)
	}
	d := &Driver{tb: tb, app: app, fs: vfs.NewMem(), chaos: c}
	d.open()
	return d
}

func (d *Driver) open() {
	d.tb.Helper()
	o := checkpoint.PlaneOptions{FS: d.fs, Now: d.Now, SyncInterval: -1}
	o.Log.SegmentBytes, o.Log.MaxBatchBytes = segmentBytes, maxBatchBytes
	plane, err := checkpoint.Open("node", o)
	if err != nil {
		d.tb.Fatalf("streamtest: open the log: %v", err)
	}
	d.plane = plane
}

// start starts the job, unless it is running.
func (d *Driver) start() {
	d.tb.Helper()
	if d.job != nil {
		return
	}
	var err error
	d.job, err = stream.StartManual(context.Background(), stream.Env{Plane: d.plane, Backend: state.Memory(), StateDir: "state", Now: d.Now, Pick: d.chaos.pick()}, d.app)
	if err != nil {
		d.tb.Fatalf("streamtest: start: %v", err)
	}
	if d.plane.FellBack() > 0 {
		d.tb.Fatalf("streamtest: the newest checkpoint is not whole, although only the process ended: results are committed twice. Please report it")
	}
}

func (d *Driver) release() {
	if d.job != nil {
		d.job.Kill()
	}
	if err := d.closePlane(); err != nil && d.failure == nil {
		d.tb.Errorf("streamtest: close the log: %v", err)
	}
}

func (d *Driver) closePlane() error {
	var errs []error
	for _, f := range d.closers {
		errs = append(errs, f())
	}
	d.closers = nil
	return errors.Join(append(errs, d.plane.Close())...)
}

// Now is the present virtual time.
func (d *Driver) Now() time.Time { return Epoch.Add(time.Duration(d.elapsed.Load())) }

// settle lets the pipeline work until nothing is left to do.
func (d *Driver) settle() bool {
	d.tb.Helper()
	if d.failure != nil {
		return false
	}
	d.start()
	if err := d.job.Settle(); err != nil {
		d.failure = err
		return false
	}
	return true
}

func (d *Driver) mustSettle() {
	d.tb.Helper()
	if !d.settle() {
		d.tb.Fatalf("streamtest: the job failed: %v", d.failure)
	}
}

// Advance moves virtual time on, which makes silent partitions idle, and lets the
// pipeline work.
func (d *Driver) Advance(by time.Duration) {
	d.tb.Helper()
	d.mustSettle() // whatever was sent is read at the old time
	d.elapsed.Add(int64(by))
	d.mustSettle()
}

// Watermark tells every source partition, and every stream behind an EventTime, that no
// record older than w is to come, and lets the pipeline work.
func (d *Driver) Watermark(w time.Time) {
	d.tb.Helper()
	d.mustSettle()
	d.job.Advance(w.UnixMilli())
	d.mustSettle()
	if d.chaos != nil {
		d.Checkpoint()
	}
}

// Checkpoint commits everything sent so far.
func (d *Driver) Checkpoint() {
	d.tb.Helper()
	d.mustSettle()
	d.job.Trigger()
	d.mustSettle()
}

// Process lets the pipeline work on everything sent so far, without committing it.
func (d *Driver) Process() {
	d.tb.Helper()
	d.mustSettle()
}

// Crash ends the process as kill -9 would, and starts it again: what was not
// committed is undone, and done again from the log.
func (d *Driver) Crash() {
	d.tb.Helper()
	d.Redeploy(d.app)
}

// Redeploy crashes the process and starts app in its place, which continues where
// the topology of the same name was.
func (d *Driver) Redeploy(app *stream.Topology) {
	d.tb.Helper()
	image := d.fs.Kill()
	if d.job != nil {
		d.job.Kill()
		d.job = nil
	}
	_ = d.closePlane() // its files are those of the dead process
	d.fs, d.app, d.failure = image, app, nil
	d.open()
	d.start()
}

// Failure lets the pipeline work and returns the failure that ended it, or nil.
func (d *Driver) Failure() error {
	d.settle()
	return d.failure
}

// Status is the job's.
func (d *Driver) Status() stream.Status {
	d.tb.Helper()
	d.mustSettle()
	return d.job.Status()
}

// Savepoint commits everything sent so far and takes a savepoint of it.
func (d *Driver) Savepoint() *stream.Savepoint {
	d.tb.Helper()
	d.Checkpoint()
	var file bytes.Buffer
	_, err := d.job.WriteSavepoint(context.Background(), &file)
	var s *stream.Savepoint
	if err == nil {
		s, err = stream.OpenSavepoint(bytes.NewReader(file.Bytes()), int64(file.Len()))
	}
	if err != nil {
		d.tb.Fatalf("streamtest: %v", err)
	}
	return s
}

// Dump commits everything sent so far and gives all state as text, as Savepoint.Dump writes it.
func (d *Driver) Dump() string {
	d.tb.Helper()
	var text strings.Builder
	if err := d.Savepoint().Dump(&text); err != nil {
		d.tb.Fatalf("streamtest: %v", err)
	}
	return text.String()
}

// Evolution is what became of the state of the job when it was started.
func (d *Driver) Evolution() stream.Evolution {
	d.tb.Helper()
	d.mustSettle()
	return d.job.Evolution()
}

// Picture is the job's: its topology with what each stage has done.
func (d *Driver) Picture() stream.Picture {
	d.tb.Helper()
	d.mustSettle()
	return d.job.Picture()
}

// View is a view of a table of the topology, or of what a step keeps, as Job.View gives it: of
// what is committed.
func (d *Driver) View[K, V any](t stream.Viewable[K, V]) *stream.View[K, V] {
	d.tb.Helper()
	d.mustSettle()
	return d.job.View(t)
}

// Get lets the pipeline work on everything sent so far and returns the row of k as it is
// then, committed or not.
func (d *Driver) Get[K, V any](t stream.Viewable[K, V], k K) (v V, ok bool) {
	d.tb.Helper()
	v, ok, err := d.View(t).Latest().Get(context.Background(), k)
	if err != nil {
		d.tb.Fatalf("streamtest: %v", err)
	}
	return v, ok
}

// Input returns a way to send records to a topic that the topology reads.
func (d *Driver) Input[K, V any](t topic.Topic[K, V]) *Input[K, V] {
	d.tb.Helper()
	if read, _ := d.app.Topics(); !slices.Contains(read, t.Name()) {
		d.tb.Fatalf("streamtest: the topology does not read %q; it reads %q", t.Name(), read)
	}
	return &Input[K, V]{d: d, topic: t}
}

// Input sends records to a topic.
type Input[K, V any] struct {
	d        *Driver
	topic    topic.Topic[K, V]
	plane    *checkpoint.Plane // of producer
	producer *topic.Producer[K, V]
}

// Send appends a record with the present virtual time, or the event time that the
// topic extracts.
func (in *Input[K, V]) Send(k K, v V) {
	in.d.tb.Helper()
	in.SendRecord(topic.Record[K, V]{Key: k, Value: v, Time: in.d.Now()})
}

// SendAt appends a record with event time at.
func (in *Input[K, V]) SendAt(at time.Time, k K, v V) {
	in.d.tb.Helper()
	in.SendRecord(topic.Record[K, V]{Key: k, Value: v, Time: at})
}

// SendRecord appends a record as it is: without a key where NoKey is set, without a
// value where Deleted is. Its partition follows from its key.
func (in *Input[K, V]) SendRecord(r topic.Record[K, V]) {
	in.d.tb.Helper()
	ctx := context.Background()
	var err error
	if in.plane != in.d.plane {
		if in.producer, err = topic.NewProducer(ctx, node{in.d.plane}, in.topic, topic.ProducerOptions{}); err == nil {
			in.plane = in.d.plane
			in.d.closers = append(in.d.closers, in.producer.Close)
		}
	}
	if err == nil {
		_, _, err = in.producer.SendRecord(ctx, r)
	}
	if err != nil {
		in.d.tb.Fatalf("streamtest: send to %s: %v", in.topic.Name(), err)
	}
	in.d.disturb()
}

// Output returns a way to read a topic that the topology writes.
func (d *Driver) Output[K, V any](t topic.Topic[K, V]) *Output[K, V] {
	d.tb.Helper()
	if _, written := d.app.Topics(); !slices.Contains(written, t.Name()) && !d.app.Routes() {
		d.tb.Fatalf("streamtest: the topology does not write %q; it writes %q", t.Name(), written)
	}
	return &Output[K, V]{d: d, topic: t}
}

// Output reads the committed records of a topic.
type Output[K, V any] struct {
	d     *Driver
	topic topic.Topic[K, V]
}

// Records commits everything sent so far and returns all committed records of the
// topic: those of a partition in order, partition after partition.
func (out *Output[K, V]) Records() []topic.Record[K, V] {
	out.d.tb.Helper()
	out.d.Checkpoint()
	return out.Committed()
}

// Committed returns the records committed so far, without committing more.
func (out *Output[K, V]) Committed() []topic.Record[K, V] {
	out.d.tb.Helper()
	var all []topic.Record[K, V]
	partitions := out.topic.Spec().Partitions
	for p := range partitions {
		for r, err := range topic.ReadPartitionToEnd(context.Background(), node{out.d.plane}, out.topic, p, topic.Start()) {
			if err != nil {
				out.d.tb.Fatalf("streamtest: read %s: %v", out.topic.Name(), err)
			}
			all = append(all, r)
		}
	}
	return all
}

// Values are the values of Records.
func (out *Output[K, V]) Values() []V {
	out.d.tb.Helper()
	var all []V
	for _, r := range out.Records() {
		all = append(all, r.Value)
	}
	return all
}

// Latest commits everything sent so far and returns the newest record of the key,
// which is missing when there is none or it was deleted.
func (out *Output[K, V]) Latest(k K) (v V, ok bool) {
	out.d.tb.Helper()
	keys, _, err := out.topic.Codecs(nil)
	if err != nil {
		out.d.tb.Fatalf("streamtest: %v", err)
	}
	want, err := keys.Append(nil, k)
	if err != nil {
		out.d.tb.Fatalf("streamtest: encode key: %v", err)
	}
	for _, r := range out.Records() {
		if got, err := keys.Append(nil, r.Key); err == nil && !r.NoKey && string(got) == string(want) {
			v, ok = r.Value, !r.Deleted
		}
	}
	return v, ok
}
