package checkpoint

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/thalweg/thalweg/log"
)

// owedMarkers are the markers of a decided transaction that could not be written, because
// the disk is full, say. The verdict stands: it is in the metadata log, which knows it
// until they are written. txnLoop tries again, and so does the next opening.
type owedMarkers struct {
	txn    log.ProducerID
	commit bool
	index  int64 // of the entry of a commit
	parts  []*log.Partition
}

// markIn writes the markers of a transaction and returns the partitions where that
// failed, but for those whose topic was deleted, with the error of one. Markers of a
// commit are waited for as the topics ask.
func (p *Plane) markIn(parts []*log.Partition, txn log.ProducerID, commit bool) (left []*log.Partition, err error) {
	var acks errgroup.Group
	for _, part := range parts {
		at, e := part.EndTransaction(txn, commit)
		switch {
		case e == nil && commit && p.strict(part.Name()):
			acks.Go(func() error { return part.Acked(context.Background(), at.Offset) })
		case e != nil && p.exists(part):
			left, err = append(left, part), e
		}
	}
	// A marker that is there and does not become durable is what the next opening finds
	// or makes anew.
	if e := acks.Wait(); e != nil {
		p.logger.Warn("the marker of a transaction is not durable", "transaction", txn, "err", e)
	}
	return left, err
}

// mark writes the markers of a transaction that was decided, and returns what could not
// be written, for owe.
func (p *Plane) mark(o owedMarkers) owedMarkers {
	var err error
	if o.parts, err = p.markIn(o.parts, o.txn, o.commit); err != nil {
		p.logger.Error("markers of a decided transaction cannot be written yet: readers wait for it until they are",
			"transaction", o.txn, "committed", o.commit, "partitions", len(o.parts), "err", err)
	}
	return o
}

// owe leaves markers to txnLoop, or says that all of a commit are written.
func (p *Plane) owe(o owedMarkers) {
	switch {
	case len(o.parts) > 0:
		p.txns.owe(o)
		select {
		case p.txns.changed <- struct{}{}:
		default:
		}
	case o.commit:
		p.marked(o.index)
	}
}

// payOwed tries to write what is owed, and tells whether some of it still is. One
// goroutine calls it.
func (p *Plane) payOwed() (owing bool) {
	for _, o := range p.txns.takeOwed() {
		o.parts, _ = p.markIn(o.parts, o.txn, o.commit)
		switch {
		case len(o.parts) > 0:
			p.txns.owe(o)
			owing = true
			continue
		case o.commit:
			p.marked(o.index)
		}
		p.logger.Info("the markers of a decided transaction are written now", "transaction", o.txn)
	}
	return owing
}

func (s *transactors) owe(o owedMarkers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed = append(s.owed, o)
}

func (s *transactors) takeOwed() []owedMarkers {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := s.owed
	s.owed = nil
	return owed
}
