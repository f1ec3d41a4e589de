package stream

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// ErrFellBehind ends a subscription whose reader is so far behind that deletions it has not
// seen are forgotten. Subscribe again, and take the new rows for all there are.
var ErrFellBehind = errors.New("stream: the subscription fell too far behind")

// Subscription is a table at one checkpoint and all that was committed to it since: what
// Rows gives, changed by what Changes gives, is the table, with nothing missed and nothing
// doubled. Not for concurrent use.
type Subscription[K, V any] struct {
	v     *View[K, V]
	job   *Job
	taken takenStores
	at    []topic.LogPosition // where each changelog goes on
	rows  bool                // there are images to read rows of
	told  *told[K, V]         // set where a change does not tell by itself what becomes of rows
}

// Update is a change of a row.
type Update[K, V any] struct {
	Row[K, V]      // as it is now; of one that is gone the key alone
	Deleted   bool // it is gone; of a Filter of rows it may not have been there before
}

// Subscribe begins a subscription to what is committed to the table; Latest makes no
// difference. It must be closed.
//
// Of sessions, sliding windows, Suppress, joins on equal keys and values in time a change of what
// is stored does not tell by itself what becomes of rows. A subscription to such a table has a
// copy of all that the table is made of in memory, and gives the changes checkpoint by
// checkpoint: at the end of each the rows are as the table was then. Where that is too
// much, subscribe to a table of its changes, made with ToStream().ToTable().
//
// A subscription ends with its job. After a restart the program subscribes again, and is
// given the rows anew.
func (v *View[K, V]) Subscribe(ctx context.Context) (*Subscription[K, V], error) {
	if v.err != nil {
		return nil, v.err
	}
	job, running := v.from.(*Job)
	if !running {
		return nil, v.wrap(errors.New("a savepoint does not change: subscribe to a table of a running job"))
	}
	committed := *v
	committed.latest = false
	taken, err := committed.take(ctx, v.shards(), nil)
	if err != nil {
		return nil, v.wrap(err)
	}
	s := &Subscription[K, V]{v: &committed, job: job, taken: taken, at: taken.ends, rows: true}
	if v.of.stored.changed == nil {
		if s.told, err = newTold(ctx, v.of, taken); err != nil {
			return nil, errors.Join(v.wrap(err), taken.close())
		}
	}
	return s, nil
}

// Checkpoint is the one the subscription begins with.
func (s *Subscription[K, V]) Checkpoint() checkpoint.ID { return s.taken.id }

// Rows walks the rows at the checkpoint, as View.All does. It may be repeated until Changes
// is called, which lets go of them.
func (s *Subscription[K, V]) Rows(ctx context.Context) iter.Seq2[Row[K, V], error] {
	return func(yield func(Row[K, V], error) bool) {
		if !s.rows {
			yield(Row[K, V]{}, s.v.wrap(errors.New("the rows of a subscription are read before its changes")))
			return
		}
		for r, err := range s.v.walk(s.taken, bounded[K]{}) {
			if err == nil {
				err = ctx.Err()
			}
			var made Row[K, V]
			if err == nil {
				made, err = s.v.decode(r)
			}
			if err != nil {
				yield(made, s.v.wrap(err))
				return
			}
			if !yield(made, nil) {
				return
			}
		}
	}
}

// Changes walks what is committed to the table after the checkpoint, and waits for more,
// until ctx ends or the job does, which is the last error then; all that the job committed
// comes before. A row that changes several times within a checkpoint comes once, as it is
// at its end; while the reader is behind it may come once for several checkpoints. The
// changes of a key come in their order.
//
// When the loop ends the subscription goes on behind the last change it was given, with the
// next call. A slow reader holds up nobody; one that is minutes behind may be given
// ErrFellBehind.
func (s *Subscription[K, V]) Changes(ctx context.Context) iter.Seq2[Update[K, V], error] {
	return func(yield func(Update[K, V], error) bool) {
		s.rows = false
		if err := s.taken.close(); err != nil {
			yield(Update[K, V]{}, s.v.wrap(err))
			return
		}
		if s.told != nil {
			s.tell(ctx, yield)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		updates := make(chan update[K, V])
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		for i, tp := range s.taken.parts {
			from := s.at[i].Offset
			readers.Go(func() { s.follow(ctx, i, tp, from, updates) })
		}
		for left := len(s.taken.parts); left > 0; {
			var u update[K, V]
			select {
			case u = <-updates:
			case <-ctx.Done():
				u.err = ctx.Err()
			}
			switch {
			case u.err == io.EOF:
				left-- // the job is over
				continue
			case u.err != nil:
				yield(Update[K, V]{}, s.v.wrap(u.err))
				return
			}
			s.at[u.part] = u.next
			if !yield(u.Update, nil) {
				return
			}
		}
		yield(Update[K, V]{}, s.v.wrap(s.job.inner.Over()))
	}
}

// update is one on its way from the reader of a changelog.
type update[K, V any] struct {
	Update[K, V]
	part int
	next topic.LogPosition // behind it
	err  error             // the reader's last; io.EOF at the end of the job
}

// follow reads a changelog from an offset on until ctx ends, which it does when nobody takes
// updates any more.
func (s *Subscription[K, V]) follow(ctx context.Context, part int, tp topic.TopicPartition, first topic.LogOffset, updates chan<- update[K, V]) {
	send := func(u update[K, V]) bool {
		u.part = part
		select {
		case updates <- u:
			return true
		case <-ctx.Done():
			return false
		}
	}
	changelog, err := s.job.run.env.Plane.Log().Partition(tp)
	if err != nil {
		send(update[K, V]{err: err})
		return
	}
	r := changelog.Reader(first, topic.ReadCommitted)
	defer r.Close()
	for over := false; ; {
		from := r.Offset()
		batch, err := r.Next()
		switch {
		case err == io.EOF && over:
			send(update[K, V]{err: io.EOF})
			return
		case err == io.EOF:
			if over, err = s.await(ctx, r); err == nil {
				continue
			}
		case err == nil && changelog.Horizon() > from:
			err = ErrFellBehind
		}
		if err != nil {
			send(update[K, V]{err: err})
			return
		}
		it := batch.Records()
		for it.Next() {
			if it.Offset < first {
				continue
			}
			stateKey, encoded, deleted, ok, err := state.ParseChange(it.Key, it.Value)
			if err == nil && !ok {
				continue
			}
			u := update[K, V]{next: topic.LogPosition{Offset: it.Offset + 1}}
			if err == nil {
				u.Update, err = s.decode(stateKey, encoded, deleted)
			}
			if u.err = err; !send(u) || err != nil {
				return
			}
		}
		if err := it.Err(); err != nil {
			send(update[K, V]{err: err})
			return
		}
	}
}

// await waits for more to read; over tells that the job has ended, and that what it
// committed can be read by now.
func (s *Subscription[K, V]) await(ctx context.Context, r *topic.LogReader) (over bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.job.inner.Context(), cancel)()
	err = r.Wait(waiting)
	if err != nil && ctx.Err() == nil && s.job.inner.Context().Err() != nil {
		return true, nil
	}
	return false, err
}

func (s *Subscription[K, V]) decode(stateKey, encoded []byte, deleted bool) (u Update[K, V], err error) {
	r, err := s.v.of.stored.changed(stateKey, encoded, deleted)
	if err != nil {
		return u, err
	}
	u.Deleted = r.gone
	if u.Row, err = s.v.decode(r); r.gone {
		u.Row = Row[K, V]{Key: u.Key}
	}
	return u, err
}

// Close lets go of what the subscription holds. It may be repeated.
func (s *Subscription[K, V]) Close() error {
	s.rows = false
	return s.taken.close()
}
