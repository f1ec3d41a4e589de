package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg/log"
)

// commit is a checkpoint whose tasks have all reported.
type commit struct {
	id      ID
	reports map[TaskID]Report // of the tasks that moved
	written []written
	ends    map[log.TopicPartition]log.Position // of the partitions written to
	strict  bool                                // all it names is to be on disk, and then its entry
}

// written is a partition the checkpoint wrote to.
type written struct {
	part   *log.Partition
	end    log.Position
	strict bool
	plain  bool // outside the transaction
}

// add takes what a writer wrote in the checkpoint. Since the gate is sealed, that is
// all it will ever write in it.
//
// A checkpoint is strict when a partition it wrote to waits for the disk, and when
// it is the first of the job to write to a partition: then every partition the job
// writes to is known after a power cut, and can be looked at for what was lost. So is
// one after which something is done outside of the log, whether it wrote or not.
func (c *commit) add(w *Writer, named bool) {
	end, wrote := w.written(c.id.N)
	if !wrote {
		return
	}
	x := written{w.part, end, w.s.p.strict(w.part.Name()), w.plain}
	c.written = append(c.written, x)
	c.strict = c.strict || x.strict || !named
	c.ends[w.part.Name()] = end
}

// commit makes a checkpoint complete: data first, then Complete, then markers. done is
// true once it is complete, also when an error came after.
func (s *Session) commit(c *commit) (done bool, err error) {
	if len(c.written) == 0 && len(c.reports) == 0 {
		return true, nil // nothing moved: no entry
	}
	if err := s.await(c); err != nil {
		return false, fmt.Errorf("checkpoint %v of job %q: %w", c.id, s.opts.Name, err)
	}
	r, index, err := s.p.proposeAt(complete{s.opts.Name, c.id, c.reports, c.ends}, c.strict)
	if err != nil {
		return false, fmt.Errorf("complete checkpoint %v of job %q: %w", c.id, s.opts.Name, err)
	}
	if err := s.mark(c, r.first); err != nil {
		return true, fmt.Errorf("checkpoint %v of job %q is complete, but: %w", c.id, s.opts.Name, err)
	}
	s.p.marked(index)
	return true, nil
}

// await waits until everything the checkpoint wrote is as durable as the topics
// demand. When the entry will be on disk, so is all it names before, inputs and the
// outputs of topics that ask for less too, and what earlier entries name, which go
// to disk with it: an entry is never more durable than that.
func (s *Session) await(c *commit) error {
	for _, w := range c.written {
		s.behind[w.part] = w.end.Offset
	}
	s.readBehind(c.reports)
	if c.strict {
		return s.syncBehind(s.ctx)
	}
	for _, w := range c.written {
		// Nothing waits for the disk: this returns at once.
		if err := w.part.Acked(s.ctx, w.end.Offset); err != nil {
			return err
		}
	}
	return nil
}

// readBehind notes what was read as named by an entry.
func (s *Session) readBehind(reports map[TaskID]Report) {
	for _, r := range reports {
		for _, in := range r.Inputs {
			if part, err := s.p.log.Partition(in.Partition); err == nil {
				s.behind[part] = max(s.behind[part], in.Next.Offset)
			}
		}
	}
}

// syncBehind makes durable all that entries of the session name.
func (s *Session) syncBehind(ctx context.Context) error {
	var g errgroup.Group
	for part, end := range s.behind {
		if part.Durable() >= end {
			continue
		}
		g.Go(func() error {
			err := part.Sync(ctx)
			if _, exists := s.p.log.Spec(part.Name().Topic); !exists {
				return nil // deleted since
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	clear(s.behind)
	return nil
}

// mark writes the commit markers, which repeats nothing where one is there. Readers of
// a partition that waits for the disk see the records once the marker is there too.
func (s *Session) mark(c *commit, txn log.ProducerID) error {
	var acks errgroup.Group
	var err error
	for _, w := range c.written {
		if w.plain {
			continue
		}
		at, e := w.part.EndTransaction(txn, true)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("commit marker in %v: %w", w.part.Name(), e))
			continue
		}
		if w.strict {
			acks.Go(func() error { return w.part.Acked(context.Background(), at.Offset) })
		}
	}
	return errors.Join(err, acks.Wait())
}

// committed tells the coordinator what became of the checkpoint.
func (s *Session) committed(c *commit, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done {
		for tp := range c.ends {
			s.named[tp] = struct{}{}
		}
		if _, ok := s.coord.committed(c.id, outcomeAccepted); ok {
			s.gate.advance()
			if s.opts.Hooks.Complete != nil {
				s.hooks = append(s.hooks, func() { s.opts.Hooks.Complete(c.id) })
			}
		}
	}
	if err != nil {
		s.failLocked(err)
	}
	s.busy = false
	s.idle.Broadcast()
}
