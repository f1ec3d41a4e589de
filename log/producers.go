package log

import (
	"fmt"
	"slices"
	"time"
)

// Owners tells who owns a producer id. The metadata log implements it.
type Owners interface {
	// Owner returns the first id of the block that holds id and whether its
	// owner is over; known is false while no block known holds it. It is called
	// with a partition locked and must not block or call back.
	Owner(id ProducerID) (first ProducerID, over, known bool)
}

// recentBatches is how many batches of a producer are remembered: as many as may
// be in flight, so that any of them can be repeated.
const recentBatches = 5

// verdict is how a transaction ended.
type verdict uint8

const (
	undecided verdict = iota
	committed
	aborted
)

func verdictOf(commit bool) verdict {
	if commit {
		return committed
	}
	return aborted
}

func (v verdict) String() string {
	return [...]string{"undecided", "committed", "aborted"}[v]
}

// sentBatch is a batch a producer wrote.
type sentBatch struct {
	firstSequence, lastSequence int32
	base, last                  Offset
}

// producer is what the partition remembers of a producer id.
type producer struct {
	id       ProducerID
	epoch    int16
	recent   [recentBatches]sentBatch // the newest last; only the last count are valid
	count    int
	lastSeen int64 // wall clock at the last batch, Unix ms

	transactionFirst Offset  // first offset of the open transaction, or -1
	transactionSince int64   // wall clock at its first batch, Unix ms
	ended            verdict // of the last transaction, undecided before the first end
}

func (p *producer) open() bool { return p.transactionFirst >= 0 }

// newest returns the last batch; ok is false when none is remembered.
func (p *producer) newest() (sentBatch, bool) {
	return p.recent[recentBatches-1], p.count > 0
}

func (p *producer) remember(b sentBatch) {
	copy(p.recent[:], p.recent[1:])
	p.recent[recentBatches-1] = b
	p.count = min(p.count+1, recentBatches)
}

// ownerEnd is the highest id of an owner whose transaction ended here. Ids are
// used in order, so all below have ended too.
type ownerEnd struct {
	id    ProducerID
	ended verdict // undecided when the transaction wrote nothing here
}

// producers is the memory of a partition: who wrote which sequence numbers, which
// transactions are open and which ids have ended. Guarded by Partition.mu.
//
// Without owners each id is its own owner, and may run several transactions one
// after the other, as Kafka's producers do. With them an id is for one transaction,
// and what is kept of the ended ones is a number for each owner.
type producers struct {
	owners Owners        // nil until set
	expiry time.Duration // negative: never

	byID    map[ProducerID]*producer
	byOwner map[ProducerID]ownerEnd // by the owner's first id
	opened  []*producer             // with an open transaction, by first offset
	pruneAt int                     // size of byID at which to look for expired ones
}

const firstPrune = 1024

func newProducers(owners Owners, expiry time.Duration) *producers {
	return &producers{
		owners:  owners,
		expiry:  expiry,
		byID:    make(map[ProducerID]*producer),
		byOwner: make(map[ProducerID]ownerEnd),
		pruneAt: firstPrune,
	}
}

// get returns what is remembered of id: nil when nothing is, or no longer.
func (s *producers) get(id ProducerID, now int64) *producer {
	p := s.byID[id]
	if p == nil || s.expired(p, now) {
		return nil
	}
	return p
}

// expired tells whether p can be forgotten. A clock that went back makes it stay.
func (s *producers) expired(p *producer, now int64) bool {
	return s.expiry >= 0 && !p.open() && now-p.lastSeen > s.expiry.Milliseconds()
}

// check tells whether b may be appended. duplicate is not nil when b is an exact
// repetition of that earlier batch.
func (s *producers) check(b *Batch, now int64) (duplicate *sentBatch, err error) {
	id := b.Producer.ID
	p := s.get(id, now)
	if s.owners != nil {
		if err := s.checkOwner(b, p); err != nil {
			return nil, err
		}
	}
	if p == nil {
		// Nothing says that a record is missing: an id is new here, or its owner
		// paused longer than it is remembered.
		return nil, nil
	}
	if b.Producer.Epoch < p.epoch {
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch has %d", ErrFenced, id, p.epoch, b.Producer.Epoch)
	}
	newest, some := p.newest()
	if b.Producer.Epoch > p.epoch {
		if p.open() {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d while its transaction of epoch %d, from offset %d on, is open",
				ErrOutOfOrder, id, b.Producer.Epoch, p.epoch, p.transactionFirst)
		}
		if b.Producer.Sequence != 0 {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d with sequence %d, expected is 0",
				ErrOutOfOrder, id, b.Producer.Epoch, b.Producer.Sequence)
		}
		return nil, nil
	}
	if p.open() && !b.Producer.Transactional {
		return nil, fmt.Errorf("%w: producer %d has a transaction open from offset %d on, the batch is not part of it",
			ErrInvalidBatch, id, p.transactionFirst)
	}
	if !some {
		return nil, nil
	}
	lastSequence := b.lastSequence()
	for i := recentBatches - p.count; i < recentBatches; i++ {
		if sent := &p.recent[i]; sent.firstSequence == b.Producer.Sequence && sent.lastSequence == lastSequence {
			return sent, nil
		}
	}
	if expected := addSequence(newest.lastSequence, 1); b.Producer.Sequence != expected {
		return nil, fmt.Errorf("%w: producer %d sends sequence %d, expected is %d", ErrOutOfOrder, id, b.Producer.Sequence, expected)
	}
	return nil, nil
}

// checkOwner refuses what its owner can no longer mean to write.
func (s *producers) checkOwner(b *Batch, p *producer) error {
	id := b.Producer.ID
	first, over, known := s.owners.Owner(id)
	if !known {
		return fmt.Errorf("%w: producer %d", ErrUnknownOwner, id)
	}
	if over {
		return fmt.Errorf("%w: the owner of producer %d is over", ErrFenced, id)
	}
	if p != nil && p.open() {
		return nil
	}
	if p != nil && p.ended != undecided {
		return fmt.Errorf("%w: the transaction of producer %d is %s", ErrFenced, id, p.ended)
	}
	// An idempotent id without transactions lives beside the owner's later ones.
	if end, ok := s.byOwner[first]; ok && id <= end.id && (p == nil || b.Producer.Transactional) {
		return fmt.Errorf("%w: producer %d comes before %d, whose transaction has ended", ErrFenced, id, end.id)
	}
	return nil
}

// apply notes that b, checked before, is in the log from base to last.
func (s *producers) apply(b *Batch, base, last Offset, now int64) {
	p := s.get(b.Producer.ID, now)
	if p == nil {
		if len(s.byID) >= s.pruneAt {
			s.prune(now)
		}
		p = &producer{id: b.Producer.ID, epoch: b.Producer.Epoch, transactionFirst: -1}
		s.byID[p.id] = p
	}
	if p.epoch != b.Producer.Epoch {
		p.epoch, p.count = b.Producer.Epoch, 0
	}
	p.remember(sentBatch{
		firstSequence: b.Producer.Sequence,
		lastSequence:  b.lastSequence(),
		base:          base,
		last:          last,
	})
	p.lastSeen = now
	if b.Producer.Transactional && !p.open() {
		p.transactionFirst, p.transactionSince, p.ended = base, now, undecided
		s.opened = append(s.opened, p)
	}
}

// end notes the marker of id at the given offset and returns the transaction's
// first offset. ok is false when none was open.
func (s *producers) end(id ProducerID, v verdict, now int64) (first Offset, ok bool) {
	p := s.byID[id]
	if p == nil || !p.open() {
		return 0, false
	}
	first = p.transactionFirst
	p.transactionFirst, p.ended, p.lastSeen = -1, v, now
	at := slices.Index(s.opened, p)
	s.opened = slices.Delete(s.opened, at, at+1)
	s.fold(p)
	return first, true
}

// fold leaves of an ended id only what its owner's entry says, once the owner is
// known.
func (s *producers) fold(p *producer) {
	if s.owners == nil || p.open() || p.ended == undecided {
		return
	}
	first, _, known := s.owners.Owner(p.id)
	if !known {
		return
	}
	s.noteEnd(first, p.id, p.ended)
	delete(s.byID, p.id)
}

func (s *producers) noteEnd(first, id ProducerID, v verdict) {
	if end, ok := s.byOwner[first]; !ok || id > end.id {
		s.byOwner[first] = ownerEnd{id: id, ended: v}
	}
}

// endedAs returns how the last transaction of id ended; undecided when that is
// not known or it wrote nothing here.
func (s *producers) endedAs(id ProducerID) verdict {
	if p := s.byID[id]; p != nil {
		return p.ended
	}
	if s.owners != nil {
		if first, _, known := s.owners.Owner(id); known {
			if end := s.byOwner[first]; end.id == id {
				return end.ended
			}
		}
	}
	return undecided
}

// endWithoutRecords notes the end of a transaction that wrote nothing here, so
// that a late batch of it is refused.
func (s *producers) endWithoutRecords(id ProducerID) {
	if s.owners == nil || s.byID[id] != nil {
		return
	}
	if first, _, known := s.owners.Owner(id); known {
		s.noteEnd(first, id, undecided)
	}
}

// setOwners installs the authority on ids and folds what ended before.
func (s *producers) setOwners(owners Owners) {
	s.owners = owners
	for _, p := range s.byID {
		s.fold(p)
	}
}

// prune forgets expired ids, and all about owners that are over: their ids are
// refused for that.
func (s *producers) prune(now int64) {
	isOver := func(id ProducerID) bool {
		if s.owners == nil {
			return false
		}
		_, over, known := s.owners.Owner(id)
		return known && over
	}
	for id, p := range s.byID {
		if s.expired(p, now) || !p.open() && isOver(id) {
			delete(s.byID, id)
		}
	}
	for first := range s.byOwner {
		if isOver(first) {
			delete(s.byOwner, first)
		}
	}
	s.pruneAt = max(firstPrune, 2*len(s.byID))
}

// lastOffsets returns the last offset of the last batch of each producer that has
// not expired.
func (s *producers) lastOffsets(now int64) map[ProducerID]Offset {
	last := make(map[ProducerID]Offset, len(s.byID))
	for id, p := range s.byID {
		if newest, some := p.newest(); some && !s.expired(p, now) {
			last[id] = newest.last
		}
	}
	return last
}

// firstOpen returns the first offset of the oldest open transaction, end without
// one.
func (s *producers) firstOpen(end Offset) Offset {
	if len(s.opened) == 0 {
		return end
	}
	return s.opened[0].transactionFirst
}

// replay notes a batch read back from the log, data or marker. It returns the
// transaction an abort marker ended.
func (s *producers) replay(b *Batch, now int64) (hidden abortedTransaction, isAbort bool, err error) {
	switch {
	case b.Producer.ID == NoProducer:
	case b.Control && b.Count == 0: // compaction took the marker
	case b.Control:
		m, err := decodeMarker(b)
		if err != nil {
			return abortedTransaction{}, false, err
		}
		first, ok := s.end(b.Producer.ID, verdictOf(m.commit), now)
		if ok && !m.commit {
			return abortedTransaction{
				id: b.Producer.ID, first: first, last: b.Last, lastStable: s.firstOpen(b.Last + 1),
			}, true, nil
		}
	default:
		s.apply(b, b.Base, b.Last, now)
	}
	return abortedTransaction{}, false, nil
}

// replayAll notes what segments hold in [from, to), both between batches.
func (s *producers) replayAll(segments []*segment, from, to Offset, now int64) error {
	for _, segment := range segments {
		if segment.next <= from || segment.base >= to {
			continue
		}
		err := segment.eachBatch(max(from, segment.base), func(b *Batch) error {
			if b.Base >= to {
				return nil
			}
			_, _, err := s.replay(b, now)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
