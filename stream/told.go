package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// told is how a subscription finds out what becomes of rows that are made of several values: out
// of copies of the stores as of one checkpoint, and what the next has changed in them.
type told[K, V any] struct {
	of     viewed[K, V]
	id     checkpoint.ID // that the copies are at
	shards []map[*storeDecl]storeCopy
	queue  []Update[K, V] // of that checkpoint, not given yet
}

// storeCopy is a copy of a store of one shard, by state key.
type storeCopy map[string][]byte

// newTold copies the stores that were taken.
func newTold[K, V any](ctx context.Context, of viewed[K, V], taken takenStores) (*told[K, V], error) {
	t := &told[K, V]{of: of, id: taken.id}
	for _, in := range taken.shards {
		shard := make(map[*storeDecl]storeCopy)
		for d, im := range in {
			c := make(storeCopy)
			for e, err := range im.Range(nil, nil) {
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					return nil, err
				}
				c[string(e.Key)] = bytes.Clone(e.Value)
			}
			shard[d] = c
		}
		t.shards = append(t.shards, shard)
	}
	return t, nil
}

// changedCopy is a copy with what a checkpoint has changed in it: a nil value is a deletion.
type changedCopy struct {
	storeCopy
	changes storeCopy
}

func (c changedCopy) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok = c.changes[string(key)]
	if !ok {
		value, ok = c.storeCopy[string(key)]
	}
	return value, ok && value != nil, nil
}

// Range is of no use here: rows are looked up, and not walked.
func (c changedCopy) Range([]byte, []byte) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		yield(state.Entry{}, errors.New("stream: a copy of a store is not walked"))
	}
}

// take takes what a checkpoint has changed in the stores of one shard, and adds what becomes of
// rows to the queue, by their keys.
func (t *told[K, V]) take(shard int, changes map[*storeDecl]storeCopy) error {
	was, is := make(stores), make(stores)
	for d, c := range t.shards[shard] {
		was[d], is[d] = changedCopy{storeCopy: c}, changedCopy{c, changes[d]}
	}
	keys := make(map[string]K)
	for d, changed := range changes {
		for stateKey := range changed {
			for _, in := range []stores{was, is} {
				of, err := t.of.stored.madeOf(in, d, []byte(stateKey))
				if err != nil {
					return err
				}
				for _, k := range of {
					encoded, err := t.of.key.Append(nil, k)
					if err != nil {
						return fmt.Errorf("encode key: %w", err)
					}
					keys[string(encoded)] = k
				}
			}
		}
	}
	for _, encoded := range slices.Sorted(maps.Keys(keys)) {
		k := keys[encoded]
		before, had, err := t.of.stored.get(was, k)
		if err != nil {
			return err
		}
		now, has, err := t.of.stored.get(is, k)
		switch {
		case err != nil:
			return err
		case has && !(had && before.time == now.time && reflect.DeepEqual(before.value, now.value)):
			t.queue = append(t.queue, Update[K, V]{Row: Row[K, V]{k, now.value, time.UnixMilli(now.time).UTC()}})
		case had && !has:
			t.queue = append(t.queue, Update[K, V]{Row: Row[K, V]{Key: k}, Deleted: true})
		}
	}
	for d, changed := range changes {
		c := t.shards[shard][d]
		for stateKey, value := range changed {
			if c[stateKey] = value; value == nil {
				delete(c, stateKey)
			}
		}
	}
	return nil
}

// tell gives the changes of one checkpoint after another.
func (s *Subscription[K, V]) tell(ctx context.Context, yield func(Update[K, V], error) bool) {
	for {
		for len(s.told.queue) > 0 {
			u := s.told.queue[0]
			s.told.queue = s.told.queue[1:]
			if !yield(u, nil) {
				return
			}
		}
		if err := s.next(ctx); err != nil {
			yield(Update[K, V]{}, s.v.wrap(err))
			return
		}
	}
}

// next takes what the checkpoints since have changed, or waits until there is one.
func (s *Subscription[K, V]) next(ctx context.Context) error {
	over := s.job.inner.Context().Done()
	var ended bool
	select {
	case <-over:
		ended = true // before the look at what is committed, so that this is the last one
	default:
	}
	id, ends, newer := s.job.inner.Ends(s.taken.parts)
	if id == s.told.id {
		if ended {
			return s.job.inner.Over()
		}
		select {
		case <-newer:
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
	decls := s.v.of.stored.decls
	all := make([]map[*storeDecl]storeCopy, len(s.told.shards))
	for i, tp := range s.taken.parts {
		changes, err := s.read(ctx, tp, s.at[i].Offset, ends[i].Offset)
		if err != nil {
			return err
		}
		shard := i / len(decls)
		if all[shard] == nil {
			all[shard] = make(map[*storeDecl]storeCopy)
		}
		all[shard][decls[i%len(decls)]] = changes
	}
	for shard, changes := range all {
		if err := s.told.take(shard, changes); err != nil {
			return err
		}
	}
	s.told.id, s.at = id, ends
	return nil
}

// read reads what a changelog has in [from, to): the newest change of each state key.
func (s *Subscription[K, V]) read(ctx context.Context, tp topic.TopicPartition, from, to topic.LogOffset) (storeCopy, error) {
	changes := make(storeCopy)
	if from >= to {
		return changes, nil
	}
	changelog, err := s.job.run.env.Plane.Log().Partition(tp)
	if err != nil {
		return nil, err
	}
	r := changelog.Reader(from, topic.ReadCommitted)
	defer r.Close()
	for r.Offset() < to {
		first := r.Offset()
		batch, err := r.Next()
		switch {
		case err == io.EOF: // its marker is on its way
			over, err := s.await(ctx, r)
			if err != nil {
				return nil, err
			}
			if over && r.Offset() < to {
				if _, err := r.Next(); err == io.EOF {
					return nil, s.job.inner.Over()
				}
				r.Seek(first)
			}
			continue
		case err != nil:
			return nil, err
		case changelog.Horizon() > first:
			return nil, ErrFellBehind
		}
		it := batch.Records()
		for it.Next() {
			if it.Offset < from || it.Offset >= to {
				continue
			}
			stateKey, encoded, deleted, ok, err := state.ParseChange(it.Key, it.Value)
			if err != nil {
				return nil, err
			}
			switch {
			case !ok:
			case deleted:
				changes[string(stateKey)] = nil
			default:
				changes[string(stateKey)] = append([]byte{}, encoded...)
			}
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}
