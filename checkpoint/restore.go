package checkpoint

import (
	"fmt"
	"io"
	"slices"

	"github.com/thalweg/thalweg/log"
)

// restored is the checkpoint an attempt starts from.
type restored struct {
	checkpoint retained // whole
	ok         bool
	changelogs map[log.TopicPartition]log.Position // of the job, and where the checkpoint stands in each
	fellBackBy ID                                  // the newest checkpoint known to have been completed, when it is not this one
	fellBack   bool                                // results may be committed a second time
}

// restore picks the newest retained checkpoint of a job that is whole, and clears the
// changelogs of what later ones wrote. All older attempts are over and settled.
//
// Except after a power cut under SyncByOS the newest is always whole, and nothing
// committed lies behind it.
func (s *Session) restore() error {
	r, err := s.p.choose(s.opts.Name, s.opts.Tasks)
	if err != nil || !r.ok {
		return err
	}
	if r.fellBack {
		// The entry comes first: should the process end before the changelogs are
		// cut, the next attempt finds what is behind r and cuts it then.
		to := rollback{s.opts.Name, s.attempt, r.checkpoint.id}
		res, err := s.p.propose(to, true)
		if err != nil {
			return err
		}
		s.base = res.base
	}
	if err := s.p.clearBehind(s.opts.Name, &r); err != nil {
		return err
	}
	if r.fellBack {
		s.p.logger.Warn("a power cut took checkpoints that were not durable yet; results since may be committed a second time",
			"job", s.opts.Name, "lost", r.fellBackBy, "restored", r.checkpoint.id)
	}
	s.restored = r
	return nil
}

// choose finds the newest retained checkpoint whose positions are all there.
func (p *Plane) choose(name string, tasks []TaskID) (restored, error) {
	p.stateMu.RLock()
	var cs []retained
	durableTo := p.state.durableTo
	if j := p.state.jobs[name]; j != nil {
		cs = slices.Clone(j.checkpoints)
	}
	p.stateMu.RUnlock()
	if len(cs) == 0 {
		return restored{}, nil
	}
	newest := cs[len(cs)-1].id
	var missing error
	for n := len(cs); n > 0; n-- {
		whole := join(cs[:n])
		err := p.whole(whole, tasks, whole.index <= durableTo)
		if err == nil {
			r := restored{checkpoint: whole, ok: true, changelogs: changelogs(cs, n)}
			if n < len(cs) {
				r.fellBack, r.fellBackBy = true, newest
			}
			return r, nil
		}
		if missing == nil {
			missing = err
		}
	}
	return restored{}, fmt.Errorf("%w: job %q, newest %v: %w", ErrNoCheckpoint, name, newest, missing)
}

// whole tells what a checkpoint names that is not there.
//
// A position below a partition's start is there: retention has moved the start, which
// the reader of that partition will be told. Output that is known to have been
// durable was not lost but removed on purpose, and nobody needs it to go on.
func (p *Plane) whole(c retained, tasks []TaskID, outputsDurable bool) error {
	for _, t := range tasks {
		for _, in := range c.reports[t].Inputs {
			if err := p.holds(in.Partition, in.Next); err != nil {
				return fmt.Errorf("input of %v: %w", t, err)
			}
		}
		for _, cl := range c.reports[t].Changelogs {
			if err := p.holds(cl.Partition, cl.End); err != nil {
				return fmt.Errorf("changelog of %v: %w", t, err)
			}
		}
	}
	if outputsDurable {
		return nil
	}
	for tp, end := range c.ends {
		if _, exists := p.log.Spec(tp.Topic); !exists {
			continue // deleted
		}
		if err := p.holds(tp, end); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	}
	return nil
}

func (p *Plane) holds(tp log.TopicPartition, pos log.Position) error {
	part, err := p.log.Partition(tp)
	if err != nil {
		return fmt.Errorf("%v: %w", tp, err)
	}
	if pos.Offset > part.Start() && !part.Contains(pos) {
		return fmt.Errorf("%v ends at %d and does not hold offset %d of leader epoch %d", tp, part.End().Offset, pos.Offset, pos.Epoch)
	}
	return nil
}

// changelogs returns where checkpoint n of cs (the first n joined) stands in each of
// the job's changelogs: at the start of one that only later checkpoints wrote.
func changelogs(cs []retained, n int) map[log.TopicPartition]log.Position {
	ends := map[log.TopicPartition]log.Position{}
	for i, c := range cs {
		for _, r := range c.reports {
			for _, cl := range r.Changelogs {
				end := ends[cl.Partition]
				if i < n && end.Offset < cl.End.Offset {
					end = cl.End
				}
				ends[cl.Partition] = end
			}
		}
	}
	return ends
}

// clearBehind looks behind the checkpoint chosen for what was committed by checkpoints
// that a power cut has taken from the metadata log, or that were fallen back from.
// In a changelog it is cut away, or the state would hold it; in output it stays,
// since readers may have seen it, and is reported as results that may repeat.
func (p *Plane) clearBehind(name string, r *restored) error {
	for tp, pos := range r.changelogs {
		// What a task wrote without naming it is the checkpoint's all the same.
		from := max(pos.Offset, r.checkpoint.ends[tp].Offset)
		lost, found, err := p.clearChangelog(name, tp, from)
		if err != nil {
			return err
		}
		if found {
			r.lose(p.lostID(name, lost))
		}
	}
	suspects := p.suspects(name)
	if len(suspects) == 0 {
		return nil // nothing can be lost
	}
	for tp, end := range r.checkpoint.ends {
		if _, changelog := r.changelogs[tp]; changelog {
			continue
		}
		part, err := p.log.Partition(tp)
		if err != nil {
			continue // deleted
		}
		_, lost, found, err := committedBehind(part, end.Offset, func(id log.ProducerID) bool { return holder(suspects, id) >= 0 })
		if err != nil {
			return fmt.Errorf("read %v behind checkpoint %v: %w", tp, r.checkpoint.id, err)
		}
		if found {
			r.lose(p.lostID(name, lost))
		}
	}
	return nil
}

// suspects are the blocks of the job's attempts that may have lost Completes.
func (p *Plane) suspects(name string) []block {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	return slices.Clone(p.state.jobs[name].suspects)
}

// holder finds the block that holds id.
func holder(blocks []block, id log.ProducerID) int {
	return slices.IndexFunc(blocks, func(b block) bool { return b.first == blockOf(id) })
}

// lose notes that the checkpoint id had been completed.
func (r *restored) lose(id ID) {
	if !r.fellBack || r.fellBackBy.Before(id) {
		r.fellBack, r.fellBackBy = true, id
	}
}

// lostID names the checkpoint whose transaction is txn; the zero ID where that is not
// known any more.
func (p *Plane) lostID(name string, txn log.ProducerID) ID {
	suspects := p.suspects(name)
	i := holder(suspects, txn)
	if i < 0 {
		return ID{}
	}
	return ID{suspects[i].attempt, suspects[i].base + int64(txn-suspects[i].first)}
}

// clearChangelog cuts away what attempts have committed in a changelog at or after from.
func (p *Plane) clearChangelog(job string, tp log.TopicPartition, from log.Offset) (lost log.ProducerID, found bool, err error) {
	part, err := p.log.Partition(tp)
	if err != nil {
		return 0, false, nil // deleted
	}
	first, lost, found, err := committedBehind(part, from, func(id log.ProducerID) bool { return id >= firstBlock })
	if err != nil {
		return 0, false, fmt.Errorf("read changelog %v from %d: %w", tp, from, err)
	}
	if !found {
		return 0, false, nil
	}
	p.logger.Warn("cut from a changelog what checkpoints committed that a power cut has taken",
		"job", job, "partition", tp, "from", first, "end", part.End().Offset)
	if err := part.TruncateTo(first); err != nil {
		return 0, false, fmt.Errorf("cut changelog %v at %d: %w", tp, first, err)
	}
	return lost, true, nil
}

// clearUnnamed is clearChangelog for one of the job that no checkpoint retained names.
func (s *Session) clearUnnamed(tp log.TopicPartition) error {
	if _, named := s.restored.changelogs[tp]; named || s.writes(tp) {
		return nil
	}
	_, _, err := s.p.clearChangelog(s.opts.Name, tp, 0)
	return err
}

// committedBehind finds the first committed batch at or after from whose id is one of
// ids, and the highest such id. What comes before that batch, the markers of
// checkpoints that are kept above all, must stay.
func committedBehind(part *log.Partition, from log.Offset, ids func(log.ProducerID) bool) (first log.Offset, last log.ProducerID, found bool, err error) {
	rd := part.Reader(max(from, part.Start()), log.ReadCommitted)
	defer rd.Close()
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return first, last, found, nil
		}
		if err != nil {
			return 0, 0, false, err
		}
		if id := b.Producer.ID; ids(id) {
			if !found {
				first = b.Base
			}
			found, last = true, max(last, id)
		}
	}
}
