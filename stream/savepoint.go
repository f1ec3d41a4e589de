package stream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// WriteSavepoint writes the state of the job as of its newest complete checkpoint to w, with
// where it stands in its input, while it runs and goes on. Job.Checkpoint before it makes that
// of now. What is written is whole once WriteSavepoint has returned without an error.
//
// A savepoint holds what steps keep, by their names, the input positions and event time. It
// does not hold records: neither those of topics nor those that wait to be delivered to a
// sink outside of the log.
func (j *Job) WriteSavepoint(ctx context.Context, w io.Writer) (checkpoint.ID, error) {
	id, err := j.writeSavepoint(ctx, w)
	if err != nil {
		return checkpoint.ID{}, fmt.Errorf("stream: job %q: write a savepoint: %w", j.app.name, err)
	}
	return id, nil
}

func (j *Job) writeSavepoint(ctx context.Context, to io.Writer) (id checkpoint.ID, err error) {
	var parts []topic.TopicPartition
	for _, st := range j.run.stages {
		for _, d := range st.stores {
			for shard := range st.tasks {
				parts = append(parts, j.run.changelogOf(d, shard))
			}
		}
	}
	images, err := j.inner.Committed(ctx, parts)
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	index := savepointIndex{job: j.app.name, id: images.ID, at: j.run.env.Now().UnixMilli()}
	for task, r := range images.Reports {
		t := savepointTask{id: task, clocks: r.State}
		for _, in := range r.Inputs {
			if !isInternal(in.Partition.Topic) { // where a delivery stands means nothing elsewhere
				t.inputs = append(t.inputs, savepointInput{in.Partition, in.Next.Offset})
			}
		}
		index.tasks = append(index.tasks, t)
	}
	slices.SortFunc(index.tasks, func(a, b savepointTask) int {
		return cmp.Or(cmp.Compare(a.id.Stage, b.id.Stage), cmp.Compare(a.id.Shard, b.id.Shard))
	})
	w := &savepointWriter{w: to}
	if err := w.write(append([]byte(savepointMagic), savepointVersion)); err != nil {
		return id, err
	}
	n := 0
	for _, st := range j.run.stages {
		for _, d := range st.stores {
			s := savepointStore{name: d.name(), stage: st.name}
			for range st.tasks {
				places, err := w.shard(stoppedBy(ctx, images.Of(n).Stored()))
				if err != nil {
					if errors.Is(err, state.ErrClosed) {
						err = j.inner.Over()
					}
					return id, err
				}
				s.shards = append(s.shards, places)
				n++
			}
			index.stores = append(index.stores, s)
		}
	}
	return images.ID, w.finish(index)
}

// stoppedBy ends a walk with the error of ctx when that ends.
func stoppedBy(ctx context.Context, entries iter.Seq2[state.Entry, error]) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		for e, err := range entries {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Savepoint is the state of a job at one of its checkpoints, in a file. It is read by any
// program, with no node: what it holds as the file is, and the rows of a table as the topology
// declares it that has a step of that name. It may be used concurrently.
type Savepoint struct {
	r      io.ReaderAt
	index  savepointIndex
	closer io.Closer // may be nil
}

// OpenSavepoint opens a savepoint of size bytes. r stays the caller's. Damage of its index is
// ErrSavepoint, that of a block when the block is read.
func OpenSavepoint(r io.ReaderAt, size int64) (*Savepoint, error) {
	index, err := readSavepointIndex(r, size)
	if err != nil {
		return nil, err
	}
	return &Savepoint{r: r, index: index}, nil
}

// OpenSavepointFile opens a savepoint in a file, to be closed by Close.
func OpenSavepointFile(name string) (*Savepoint, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("stream: open a savepoint: %w", err)
	}
	info, err := f.Stat()
	var s *Savepoint
	if err == nil {
		s, err = OpenSavepoint(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	s.closer = f
	return s, nil
}

// Close closes the file, where the savepoint was opened by its name.
func (s *Savepoint) Close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer.Close()
}

// Job is the name of the job.
func (s *Savepoint) Job() string { return s.index.job }

// Checkpoint is the one the savepoint is of.
func (s *Savepoint) Checkpoint() checkpoint.ID { return s.index.id }

// Time is when it was taken, by the clock of the node.
func (s *Savepoint) Time() time.Time { return time.UnixMilli(s.index.at).UTC() }

// Stores are the states it holds.
func (s *Savepoint) Stores() (all []StepState) {
	for _, st := range s.index.stores {
		all = append(all, StepState{Name: st.name, Shards: len(st.shards)})
	}
	return all
}

// SourcePosition is how far a job had read a partition.
type SourcePosition struct {
	Topic     string
	Partition int
	Offset    int64 // of the first record not read
}

// Positions are how far the job had read its input, the least where several steps read a
// partition.
func (s *Savepoint) Positions() (all []SourcePosition) {
	for _, t := range s.index.tasks {
		for _, in := range t.inputs {
			p := SourcePosition{in.partition.Topic, int(in.partition.Partition), int64(in.next)}
			i := slices.IndexFunc(all, func(o SourcePosition) bool { return o.Topic == p.Topic && o.Partition == p.Partition })
			if i < 0 {
				all = append(all, p)
			} else {
				all[i].Offset = min(all[i].Offset, p.Offset)
			}
		}
	}
	slices.SortFunc(all, func(a, b SourcePosition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// Dump writes what the savepoint holds as text, for people to read or compare: how far the input was read, and of each
// shard of each state its entries, with keys and values as they are stored, quoted. A View gives the
// rows of a table as values.
func (s *Savepoint) Dump(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "job %q at checkpoint %v\n", s.Job(), s.Checkpoint())
	for _, p := range s.Positions() {
		fmt.Fprintf(out, "read %s/%d up to %d\n", p.Topic, p.Partition, p.Offset)
	}
	for _, st := range s.index.stores {
		for shard, blocks := range st.shards {
			fmt.Fprintf(out, "state %s, shard %d of %d\n", st.name, shard, len(st.shards))
			for e, err := range (savedShard{s.r, blocks}).entries(nil, nil) {
				if err != nil {
					return err
				}
				if key, ok := bytes.CutPrefix(e.Key, state.FirstValue()); ok { // no schema
					fmt.Fprintf(out, "\t%q = %q\n", key, e.Value)
				}
			}
		}
	}
	return out.Flush()
}

// View gives a view of a table, or of what a step keeps, which reads the state of the step in the
// savepoint. The topology needs no more than that step under that name. All views of a savepoint
// read the same; there are no subscriptions.
func (s *Savepoint) View[K, V any](t Viewable[K, V]) *View[K, V] {
	v := &View[K, V]{from: s, of: t.viewed()}
	if v.err = v.of.step.app.Validate(); v.err == nil {
		v.err = v.of.err
	}
	if v.err != nil {
		return v
	}
	for _, d := range v.of.stored.decls {
		if v.err = s.readable(d); v.err != nil {
			return v
		}
	}
	return v
}

// store finds a store by its name.
func (s *Savepoint) store(d *storeDecl) (savepointStore, bool) {
	i := slices.IndexFunc(s.index.stores, func(st savepointStore) bool { return st.name == d.name() })
	if i < 0 {
		return savepointStore{}, false
	}
	return s.index.stores[i], true
}

// readable tells whether the values of a store are what its step says, and how they were
// written.
func (s *Savepoint) readable(d *storeDecl) error {
	st, ok := s.store(d)
	if !ok {
		return fmt.Errorf("stream: the savepoint of job %q has no state of step %q (%s): it has that of %v", s.index.job, d.name(), d.step.line, s.names())
	}
	if d.schemas == nil {
		return nil
	}
	for _, blocks := range st.shards {
		for e, err := range (savedShard{s.r, blocks}).entries(nil, state.FirstValue()) {
			var schema []byte
			if err == nil {
				schema, err = state.ParseSchema(e.Key, e.Value)
			}
			if err == nil && schema != nil {
				err = d.schemas(bytes.Clone(schema))
			}
			if err != nil {
				return fmt.Errorf("stream: the state of step %q (%s) in the savepoint of job %q: %w", d.name(), d.step.line, s.index.job, err)
			}
		}
	}
	return nil
}

func (s *Savepoint) names() (names []string) {
	for _, st := range s.index.stores {
		names = append(names, st.name)
	}
	return names
}

func (s *Savepoint) shards(d *storeDecl) int {
	st, _ := s.store(d)
	return len(st.shards)
}

func (s *Savepoint) take(_ context.Context, decls []*storeDecl, shards []int, _ bool, _ []byte) (takenStores, error) {
	t := takenStores{images: noImages{}}
	for _, shard := range shards {
		in := make(stores)
		for _, d := range decls {
			st, _ := s.store(d)
			if shard >= len(st.shards) {
				return t, damaged(fmt.Sprintf("the states of %v have different numbers of shards", s.names()))
			}
			in[d] = savedImage{savedShard{s.r, st.shards[shard]}}
		}
		t.shards = append(t.shards, in)
	}
	return t, nil
}

func (s *Savepoint) why(err error) error { return err }

type noImages struct{}

func (noImages) Close() error { return nil }

// savedImage reads values as an image of a store does.
type savedImage struct{ savedShard }

func (im savedImage) Get(key []byte) (value []byte, ok bool, err error) {
	for e, err := range im.Range(key, append(bytes.Clone(key), 0)) {
		return bytes.Clone(e.Value), err == nil, err
	}
	return nil, false, nil
}

func (im savedImage) Range(lo, hi []byte) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		from, to := state.StoredKey(lo), []byte(nil)
		if hi != nil {
			to = state.StoredKey(hi)
		}
		for e, err := range im.entries(from, to) {
			if err == nil {
				e.Key, e.Value, _, _, err = state.ParseChange(e.Key, e.Value)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
