package log

// Tail is the end of a partition while WriteIf holds it still.
type Tail struct {
	p *Partition
}

// End is the offset the batch would get.
func (t Tail) End() Offset { return Offset(t.p.end.Load()) }

// Transaction tells what became of the transaction of a batch of id at base.
func (t Tail) Transaction(id ProducerID, base Offset) (open, aborted bool) {
	if p := t.p.producers.byID[id]; p != nil && p.open() && p.transactionFirst <= base {
		return true, false
	}
	return false, t.p.aborted.Load().hides(id, base)
}

// WriteIf is Write for a batch that is appended only if holds returns nil. Nothing
// comes between: what holds sees at the end of the log is what the batch follows.
// The error of holds is returned as it is, and the log stays as it was. For an exact
// repetition of an earlier batch holds is not asked.
//
// holds is called with the partition locked. It must be quick, and may use Readers
// of the partition but call nothing else of it.
func (p *Partition) WriteIf(batch []byte, holds func(Tail) error) (AppendResult, error) {
	b, err := p.checkBatch(batch)
	if err != nil {
		return AppendResult{}, err
	}
	return p.write(&b, holds)
}
