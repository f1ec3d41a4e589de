package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// View reads the rows of a table while its job runs. It may be used concurrently, and
// costs nothing while it is not.
//
// What it reads is consistent: all rows as they are at one instant, which is the newest
// complete checkpoint, so that nothing is seen that a crash could take back. Latest gives a
// view that does not wait for one. A walk over many rows sees them as they were when it
// began, however long it takes; it does not hold up the job, but what was overwritten
// since is kept for it.
//
// Rows of a windowed aggregation are there until their window closes. Those of a session
// have the time of its last record.
//
// Tables that keep rows can be read, as those of topics, of aggregations and of joins on a
// foreign key do, and Filter, Map, Suppress and joins of such tables on equal keys. What
// Process and a Trigger keep is read as Stream.State, Stream.Store and Stream.StoreInTime. The
// functions of Filter, Map, joins, and of aggregations in sliding windows, are called by the
// reader. Of other tables a reading returns an error that says how to make one that can.
type View[K, V any] struct {
	from   tables
	of     viewed[K, V]
	latest bool
	err    error // why there is nothing to be read
}

// tables is what holds the stores of tables: a running job, or a savepoint.
type tables interface {
	// shards is the number of shards of a store.
	shards(d *storeDecl) int
	// take takes images of stores in some shards: of a state key alone, where key is not nil
	// and that is all there is to take.
	take(ctx context.Context, decls []*storeDecl, shards []int, latest bool, key []byte) (takenStores, error)
	// why is err, or what is behind it.
	why(err error) error
}

// Row is a row of a table.
type Row[K, V any] struct {
	Key   K
	Value V
	Time  time.Time // of the record that made it, of an aggregate the highest of its records
}

// View gives a view of a table of the job's topology, or of what a step of it keeps: of the same
// value that the job was started from.
func (j *Job) View[K, V any](t Viewable[K, V]) *View[K, V] {
	v := &View[K, V]{from: j, of: t.viewed()}
	v.err = v.of.err
	if s := v.of.step; s.app != j.app {
		v.err = fmt.Errorf("stream: the table %q is declared by another topology than the one that job %q runs: start the job from the topology that has the table", s.label(), j.app.name)
	}
	return v
}

// Latest returns a view of all that the job has done so far, also what is not committed yet:
// after a crash it may come out otherwise, and readers of committed output have not seen it.
// The tasks are asked, between two pieces of their work, and each is at an instant of its
// own.
func (v *View[K, V]) Latest() *View[K, V] {
	latest := *v
	latest.latest = true
	return &latest
}

// Get returns the row of k; ok is false where there is none.
func (v *View[K, V]) Get(ctx context.Context, k K) (value V, ok bool, err error) {
	r, ok, err := v.Row(ctx, k)
	return r.Value, ok, err
}

// Row is Get, with the time of the row.
func (v *View[K, V]) Row(ctx context.Context, k K) (r Row[K, V], ok bool, err error) {
	if v.err != nil {
		return r, false, v.err
	}
	st := v.of.stored
	key, err := st.stateKey(k)
	if err != nil {
		return r, false, v.wrap(fmt.Errorf("encode key: %w", err))
	}
	shards, err := v.shardsOf(k)
	if err != nil {
		return r, false, v.wrap(err)
	}
	taken, err := v.take(ctx, shards, key)
	if err != nil {
		return r, false, v.wrap(err)
	}
	defer taken.close()
	for _, in := range taken.shards {
		got, ok, err := st.get(in, k)
		if err != nil {
			return r, false, v.wrap(err)
		}
		if ok {
			return Row[K, V]{k, got.value, time.UnixMilli(got.time).UTC()}, true, nil
		}
	}
	return r, false, nil
}

// All walks all rows, in the order of their encoded keys; sessions go by key. The walk may be
// repeated, and is another one then.
func (v *View[K, V]) All(ctx context.Context) iter.Seq2[Row[K, V], error] {
	return v.rows(ctx, nil, func() (bounded[K], error) { return bounded[K]{}, nil })
}

// Range walks the rows with keys in [lo, hi), by the order of their encoding: strings and
// bytes as they are, numbers by size. Windows go by start, end and key: window.Range has
// bounds for a span of time.
func (v *View[K, V]) Range(ctx context.Context, lo, hi K) iter.Seq2[Row[K, V], error] {
	return v.rows(ctx, nil, func() (b bounded[K], err error) {
		b.first, b.last = &lo, &hi
		if b.lo, err = v.of.key.Append([]byte{}, lo); err == nil {
			b.hi, err = v.of.key.Append([]byte{}, hi)
		}
		return b, err
	})
}

// Prefix walks the rows whose encoded key begins with that of p: of strings, those that
// begin with p. Of windows take Windows.
func (v *View[K, V]) Prefix(ctx context.Context, p K) iter.Seq2[Row[K, V], error] {
	return v.rows(ctx, nil, func() (b bounded[K], err error) {
		if b.lo, err = v.of.key.Append([]byte{}, p); err == nil {
			b.hi = behind(b.lo)
		}
		return b, err
	})
}

// behind is the first key that does not begin with prefix and comes after those that do; nil
// where there is none.
func behind(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xff {
			hi := bytes.Clone(prefix[:n])
			hi[n-1]++
			return hi
		}
	}
	return nil
}

// Windows walks the windows of k that start in [from, to) and have not closed, the oldest
// first.
func Windows[K, V any](ctx context.Context, v *View[window.Key[K], V], k K, from, to time.Time) iter.Seq2[Row[window.Key[K], V], error] {
	lo, hi := window.Range(k, from, to)
	return func(yield func(Row[window.Key[K], V], error) bool) {
		var shards []int
		var own []byte
		err := v.err
		if err == nil {
			if shards, err = v.shardsOf(lo); err == nil {
				own, err = v.of.stored.owner(lo)
			}
		}
		if err != nil {
			yield(Row[window.Key[K], V]{}, err)
			return
		}
		rows := v.rows(ctx, shards, func() (b bounded[window.Key[K]], err error) {
			b.first, b.last = &lo, &hi
			if b.lo, err = v.of.key.Append([]byte{}, lo); err == nil {
				b.hi, err = v.of.key.Append([]byte{}, hi)
			}
			return b, err
		})
		for r, err := range rows {
			var of []byte
			if err == nil {
				of, err = v.of.stored.owner(r.Key)
			}
			if (err != nil || bytes.Equal(of, own)) && !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// rows walks the rows within bounds, of the shards given, or of all.
func (v *View[K, V]) rows(ctx context.Context, shards []int, bounds func() (bounded[K], error)) iter.Seq2[Row[K, V], error] {
	return func(yield func(Row[K, V], error) bool) {
		fail := func(err error) { yield(Row[K, V]{}, v.wrap(err)) }
		if v.err != nil {
			yield(Row[K, V]{}, v.err)
			return
		}
		within, err := bounds()
		if err != nil {
			fail(fmt.Errorf("encode key: %w", err))
			return
		}
		if shards == nil {
			shards = v.shards()
		}
		taken, err := v.take(ctx, shards, nil)
		if err != nil {
			fail(err)
			return
		}
		defer taken.close()
		for r, err := range v.walk(taken, within) {
			if err == nil {
				err = ctx.Err()
			}
			var made Row[K, V]
			if err == nil {
				made, err = v.decode(r)
			}
			if err != nil {
				fail(err)
				return
			}
			if !yield(made, nil) {
				return
			}
		}
	}
}

func (v *View[K, V]) decode(r storedRow[V]) (Row[K, V], error) {
	k, err := v.of.key.Decode(r.key)
	if err != nil {
		return Row[K, V]{}, fmt.Errorf("decode key: %w", err)
	}
	return Row[K, V]{k, r.value, time.UnixMilli(r.time).UTC()}, nil
}

// walk walks the rows of all shards taken, in one order where they have one.
func (v *View[K, V]) walk(taken takenStores, within bounded[K]) iter.Seq2[storedRow[V], error] {
	st := v.of.stored
	return func(yield func(storedRow[V], error) bool) {
		if !st.sorted || len(taken.shards) == 1 {
			for _, in := range taken.shards {
				for r, err := range st.walk(in, within) {
					if !yield(r, err) {
						return
					}
				}
			}
			return
		}
		type head struct {
			next func() (storedRow[V], error, bool)
			row  storedRow[V]
			err  error
		}
		var heads []*head
		for _, in := range taken.shards {
			next, stop := iter.Pull2(st.walk(in, within))
			defer stop()
			h := &head{next: next}
			var ok bool
			if h.row, h.err, ok = next(); ok {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int { return bytes.Compare(a.row.key, b.row.key) })
			for _, h := range heads {
				if h.err != nil {
					first = h
				}
			}
			if !yield(first.row, first.err) || first.err != nil {
				return
			}
			var ok bool
			if first.row, first.err, ok = first.next(); !ok {
				heads = slices.DeleteFunc(heads, func(h *head) bool { return h == first })
			}
		}
	}
}

// shards are all that the table has.
func (v *View[K, V]) shards() (all []int) {
	for shard := range v.from.shards(v.of.stored.decls[0]) {
		all = append(all, shard)
	}
	return all
}

// shardsOf are those where the row of k may be.
func (v *View[K, V]) shardsOf(k K) ([]int, error) {
	all := v.shards()
	if len(all) == 1 || v.of.stored.anywhere || !spreads(v.of.step) {
		return all, nil
	}
	own, err := v.of.stored.owner(k)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return []int{topic.Partition(own, len(all))}, nil
}

// shards is the number of shards of a store.
func (j *Job) shards(d *storeDecl) int {
	for _, st := range j.run.stages {
		if slices.Contains(st.stores, d) {
			return st.tasks
		}
	}
	return 0
}

// takenStores are images of the stores of a table.
type takenStores struct {
	images io.Closer
	shards []stores

	id    checkpoint.ID          // of the checkpoint they are at
	parts []topic.TopicPartition // the changelogs
	ends  []topic.LogPosition    // where they are in that checkpoint
}

func (t takenStores) close() error { return t.images.Close() }

// changelogOf is the changelog of one shard of a store.
func (r *run) changelogOf(d *storeDecl, shard int) topic.TopicPartition {
	return topic.TopicPartition{Topic: r.changelog(d), Partition: topic.PartitionID(shard)}
}

func (j *Job) take(ctx context.Context, decls []*storeDecl, shards []int, latest bool, key []byte) (t takenStores, err error) {
	for _, shard := range shards {
		for _, d := range decls {
			t.parts = append(t.parts, j.run.changelogOf(d, shard))
		}
	}
	var images *engine.Images
	if latest {
		images, err = j.inner.Latest(ctx, t.parts, key)
	} else {
		images, err = j.inner.Committed(ctx, t.parts)
	}
	if err != nil {
		return t, err
	}
	t.images, t.id, t.ends = images, images.ID, images.Ends
	n := 0
	for range shards {
		in := make(stores)
		for _, d := range decls {
			in[d] = images.Of(n)
			n++
		}
		t.shards = append(t.shards, in)
	}
	return t, nil
}

// why is the end of the job, where that closed what was being read.
func (j *Job) why(err error) error {
	if errors.Is(err, state.ErrClosed) && j.inner.Context().Err() != nil {
		return j.inner.Over()
	}
	return err
}

func (v *View[K, V]) take(ctx context.Context, shards []int, key []byte) (takenStores, error) {
	return v.from.take(ctx, v.of.stored.decls, shards, v.latest, key)
}

// wrap says what was read when err came.
func (v *View[K, V]) wrap(err error) error {
	err = v.from.why(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stream: read the table of step %q: the job did not answer in time: %w", v.of.step.label(), err)
	}
	return fmt.Errorf("stream: read the table of step %q: %w", v.of.step.label(), err)
}
