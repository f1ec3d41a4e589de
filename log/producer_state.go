package log

// ProducerState is what a partition remembers of a producer id.
type ProducerState struct {
	// Next is the sequence number expected next. Numbers count records from 0 and
	// begin again after 2^31-1.
	Next int32

	// Recent are the last batches, the oldest first, at most five: what is
	// recognised when it is repeated.
	Recent []SentBatch
}

// SentBatch is a batch of a producer that is in the log, or was before its records
// were deleted. Its records have consecutive sequence numbers and offsets.
type SentBatch struct {
	Sequence int32  // of the first record
	Base     Offset // of the first record
	Count    int32  // records
}

// ProducerState returns what is remembered of id; ok is false when nothing is,
// because id wrote nothing here or paused for longer than Options.ProducerExpiry.
func (p *Partition) ProducerState(id ProducerID) (state ProducerState, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.producers.get(id, p.options.Now().UnixMilli())
	if known == nil {
		return ProducerState{}, false
	}
	newest, some := known.newest()
	if !some {
		return ProducerState{}, false
	}
	state.Next = addSequence(newest.lastSequence, 1)
	for _, b := range known.recent[recentBatches-known.count:] {
		state.Recent = append(state.Recent, SentBatch{Sequence: b.firstSequence, Base: b.base, Count: int32(b.last-b.base) + 1})
	}
	return state, true
}
