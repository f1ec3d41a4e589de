package checkpoint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// Producer ids come in blocks of a fixed size at multiples of that size, so that an
// id alone names the first one of its block, whether or not its owner is remembered.
// Ids below firstProducer are never handed out: they are those of partitions copied
// from elsewhere.
//
//	[2^40, 2^48)  plain producers, a block is one id
//	[2^48, 2^63)  attempts, a block is 2^36 ids: two years of checkpoints, one every
//	              millisecond, and 2^27 attempts
const (
	firstProducer log.ProducerID = 1 << 40
	firstBlock    log.ProducerID = 1 << 48
	blockSize     log.ProducerID = 1 << 36
	lastBlock     log.ProducerID = (1<<27 - 1) << 36 // first id of the last block, which is never handed out
)

// blockOf is the first id of the block that holds id.
func blockOf(id log.ProducerID) log.ProducerID {
	if id < firstBlock {
		return id
	}
	return id &^ (blockSize - 1)
}

// metadata is the state after a prefix of the metadata log. It changes by apply
// alone, so two that applied the same entries are equal.
//
// Invariants:
//
//	owners and producers hold live owners only, each id of theirs below nextBlock
//	or nextProducer: an id handed out that belongs to none is of an owner that is
//	over, so this state grows with live owners, never with transactions. outcomes, which
//	are for users alone, are bounded.
//
//	completed is sorted by index; all of it above durableTo.
type metadata struct {
	rules rules

	applied      int64 // index of the last entry applied; -1 before the first
	durableTo    int64 // highest index said to be durable; -1 before
	nextProducer log.ProducerID
	nextBlock    log.ProducerID
	producers    map[log.ProducerID]struct{}
	owners       map[log.ProducerID]string // first id of a live attempt's block: its job
	jobs         map[string]*job
	completed    []completion
	groups       *group.State // consumer groups and their positions
	named        namedProducers
	txnOwners    map[log.ProducerID]txnOwner // live ones, by the first id of their block
	outcomes     outcomes                    // of plain transactions
}

// job is what the metadata log knows of a job.
type job struct {
	attempt int64  // the present one; grows only
	live    bool   // the attempt has an owner
	nonce   uint64 // of the entry that began it

	// first is the block of the newest attempt that had one, and base the number
	// its ids count from: the transaction of checkpoint n is first + n - base.
	first log.ProducerID
	base  int64

	// suspects are the blocks of attempts that an unclean stop ended since the
	// newest checkpoint, oldest first: Completes of theirs may have been lost.
	suspects []block

	// checkpoints are the retained ones, oldest first. The first is whole, the
	// others hold what differs from the one before.
	checkpoints []retained
}

// block is the block of ids of an attempt: the transaction of checkpoint n is
// first + n - base.
type block struct {
	attempt int64
	first   log.ProducerID
	base    int64
}

// maxSuspects bounds a job's suspects. Only one that never completes anything, at
// attempt after attempt, meets it; then some lost checkpoint goes unreported.
const maxSuspects = 64

// retained is a checkpoint that recovery may start from.
type retained struct {
	id      ID
	index   int64 // of its entry
	reports map[TaskID]Report
	ends    map[log.TopicPartition]log.Position
}

// completion is a completed transaction whose markers are not known to be durable.
type completion struct {
	index int64 // of its Complete
	txn   log.ProducerID
	job   string
	ends  map[log.TopicPartition]log.Position // the partitions that need a marker
}

func newMetadata(r rules) *metadata {
	return &metadata{
		rules: r, applied: -1, durableTo: -1,
		nextProducer: firstProducer, nextBlock: firstBlock,
		producers: map[log.ProducerID]struct{}{},
		owners:    map[log.ProducerID]string{},
		jobs:      map[string]*job{},
		groups:    group.NewState(),
		named:     newNamedProducers(),
		txnOwners: map[log.ProducerID]txnOwner{},
		outcomes:  newOutcomes(),
	}
}

// result is what an entry did. A rejected entry (err set) changed nothing but
// applied; a repetition of an accepted one is the same success.
type result struct {
	first  log.ProducerID // of the block handed out, or that of a completed transaction
	base   int64          // where the block's numbers start
	last   ID             // the job's newest checkpoint at this entry
	known  bool           // last is one
	repeat bool           // the entry had been accepted before
	groups bool           // whoever watches a group has to look again
	err    error
}

// apply brings the state past the entry at index. All compare-and-set checks are
// here, so that an entry's fate is a function of the log.
func (m *metadata) apply(index int64, e entry) result {
	m.applied = index
	switch e := e.(type) {
	case nodeStart:
		return m.nodeStart(e)
	case producerBegin:
		return m.producerBegin()
	case namedProducer:
		return m.namedProducer(e)
	case forgetProducer:
		m.named.forget(e.name)
		return result{}
	case txnOwnerBegin:
		return m.txnOwnerBegin(e)
	case txnOwnerEnd:
		m.endTxnOwner(e.first)
		return result{}
	case txnCommit:
		return m.txnCommit(index, e)
	case txnAbort:
		return m.txnAbort(e)
	case producerEnd:
		delete(m.producers, e.id)
		return result{}
	case attemptBegin:
		return m.attemptBegin(e)
	case attemptEnd:
		return m.attemptEnd(e)
	case complete:
		return m.complete(index, e)
	case rollback:
		return m.rollback(e)
	case durable:
		m.durable(e.upTo)
		return result{}
	case groupEntry:
		r := m.groups.Apply(e.time, e.command)
		return result{groups: r.Changed, err: r.Err}
	}
	return result{err: fmt.Errorf("%w: %T cannot be applied", ErrInvalid, e)}
}

func (m *metadata) nodeStart(e nodeStart) result {
	clear(m.producers)
	for _, first := range sortedOrdered(m.txnOwners) {
		m.endTxnOwner(first)
	}
	for _, j := range m.jobs {
		if j.live {
			if e.unclean && len(j.suspects) < maxSuspects {
				j.suspects = append(slices.Clip(j.suspects), block{j.attempt, j.first, j.base})
			}
			m.endAttempt(j)
			j.attempt++
		}
	}
	return result{}
}

func (m *metadata) producerBegin() result {
	id := m.nextProducer
	if id >= firstBlock {
		return result{err: ErrExhausted}
	}
	m.nextProducer++
	m.producers[id] = struct{}{}
	return result{first: id}
}

func (m *metadata) attemptBegin(e attemptBegin) result {
	j := m.jobs[e.job]
	if j == nil {
		j = &job{}
	}
	if j.live && j.attempt == e.attempt && j.nonce == e.nonce {
		return j.began(true)
	}
	if e.attempt != j.attempt+1 {
		return result{err: fmt.Errorf("%w: attempt %d of %q cannot follow %d", ErrAttemptOver, e.attempt, e.job, j.attempt)}
	}
	if m.nextBlock >= lastBlock {
		return result{err: ErrExhausted}
	}
	m.endAttempt(j)
	m.jobs[e.job] = j
	j.attempt, j.nonce, j.live = e.attempt, e.nonce, true
	j.first, j.base = m.nextBlock, 0
	if last, ok := j.newest(); ok {
		j.base = last.N
	}
	m.nextBlock += blockSize
	m.owners[j.first] = e.job
	return j.began(false)
}

func (j *job) began(repeat bool) result {
	last, known := j.newest()
	return result{first: j.first, base: j.base, last: last, known: known, repeat: repeat}
}

func (m *metadata) attemptEnd(e attemptEnd) result {
	j := m.jobs[e.job]
	switch {
	case j != nil && j.live && j.attempt == e.attempt:
		m.endAttempt(j)
		j.attempt++
		return result{}
	case j != nil && !j.live && j.attempt == e.attempt+1:
		return result{repeat: true}
	}
	return result{err: fmt.Errorf("%w: attempt %d of %q", ErrAttemptOver, e.attempt, e.job)}
}

// endAttempt takes the attempt's block from its owner: from here on nothing can be
// completed in it, so that the verdict on each of its ids is final.
func (m *metadata) endAttempt(j *job) {
	if j.live {
		delete(m.owners, j.first)
		j.live = false
	}
}

func (m *metadata) complete(index int64, e complete) result {
	j := m.jobs[e.job]
	if j == nil || (e.id.Attempt != j.attempt || !j.live) && !m.rules.acceptAnyAttempt {
		return result{err: fmt.Errorf("%w: checkpoint %v of %q", ErrAttemptOver, e.id, e.job)}
	}
	txn := j.first + log.ProducerID(e.id.N-j.base)
	last, known := j.newest()
	if known && !last.Before(e.id) {
		if j.retains(e.id) {
			return result{first: txn, repeat: true}
		}
		return result{err: fmt.Errorf("%w: %v of %q after %v", ErrGeneration, e.id, e.job, last)}
	}
	if n := e.id.N - j.base; n < 0 || n >= int64(blockSize) {
		return result{err: fmt.Errorf("%w: checkpoint %v of %q", ErrExhausted, e.id, e.job)}
	}
	j.suspects = nil // whatever was lost has been found and told by now
	j.checkpoints = append(j.checkpoints, retained{id: e.id, index: index, reports: e.reports, ends: e.ends})
	if len(e.ends) > 0 {
		if m.rules.rememberNewest {
			m.completed = slices.DeleteFunc(m.completed, func(c completion) bool { return c.job == e.job })
		}
		m.completed = append(m.completed, completion{index: index, txn: txn, job: e.job, ends: e.ends})
	}
	return result{first: txn}
}

func (m *metadata) rollback(e rollback) result {
	j := m.jobs[e.job]
	if j == nil || !j.live || j.attempt != e.attempt {
		return result{err: fmt.Errorf("%w: attempt %d of %q", ErrAttemptOver, e.attempt, e.job)}
	}
	at := slices.IndexFunc(j.checkpoints, func(c retained) bool { return c.id == e.to })
	if last, _ := j.newest(); at < 0 || last.Attempt >= e.attempt {
		return result{err: fmt.Errorf("%w: %v of %q is not retained, or attempt %d has completed checkpoints", ErrGeneration, e.to, e.job, e.attempt)}
	}
	repeat := at == len(j.checkpoints)-1
	clear(j.checkpoints[at+1:])
	j.checkpoints = j.checkpoints[:at+1]
	j.base = e.to.N
	return result{first: j.first, base: j.base, last: e.to, known: true, repeat: repeat}
}

// durable forgets completed transactions and all but the newest of the checkpoints
// at or below upTo. The caller vouches that their data and markers are on disk.
func (m *metadata) durable(upTo int64) {
	if upTo <= m.durableTo {
		return
	}
	m.durableTo = upTo
	for _, j := range m.jobs {
		j.checkpoints = fold(j.checkpoints, upTo)
	}
	m.completed = slices.DeleteFunc(m.completed, func(c completion) bool { return c.index <= upTo })
}

// fold joins the checkpoints at or below upTo into one whole one. What the result
// holds is new: maps handed out before stay as they were.
func fold(cs []retained, upTo int64) []retained {
	n := 0
	for n < len(cs) && cs[n].index <= upTo {
		n++
	}
	if n < 2 {
		return cs
	}
	return append([]retained{join(cs[:n])}, cs[n:]...)
}

// join returns the last of cs made whole.
func join(cs []retained) retained {
	whole := cs[len(cs)-1]
	whole.reports = map[TaskID]Report{}
	whole.ends = map[log.TopicPartition]log.Position{}
	for _, c := range cs {
		maps.Copy(whole.reports, c.reports)
		maps.Copy(whole.ends, c.ends)
	}
	return whole
}

// newest is the job's last complete checkpoint.
func (j *job) newest() (ID, bool) {
	if len(j.checkpoints) == 0 {
		return ID{}, false
	}
	return j.checkpoints[len(j.checkpoints)-1].id, true
}

func (j *job) retains(id ID) bool {
	return slices.ContainsFunc(j.checkpoints, func(c retained) bool { return c.id == id })
}

// owner answers for Plane as log.Owners: the block's first id comes from the id alone.
func (m *metadata) owner(id log.ProducerID) (first log.ProducerID, over, known bool) {
	first = blockOf(id)
	if id < firstBlock {
		if id < firstProducer || id >= m.nextProducer {
			return first, false, false
		}
		_, live := m.producers[id]
		return first, !live && !m.named.has(id), true
	}
	if id >= m.nextBlock {
		return first, false, false
	}
	_, job := m.owners[first]
	_, txns := m.txnOwners[first]
	return first, !job && !txns, true
}

// verdict is what the metadata log says of a transaction.
//
//	undecided ──▶ committed   a Complete names it while its owner is live
//	          └─▶ aborted     its owner ended before, or an entry aborted it
type verdict uint8

const (
	undecided verdict = iota
	committed
	aborted
)

func (v verdict) String() string {
	return [...]string{"undecided", "committed", "aborted"}[v]
}

// verdict is final unless undecided. It is meaningful for transactions that lack a
// marker somewhere: of a committed one whose markers are all durable nothing is
// remembered, and nobody has a reason to ask.
func (m *metadata) verdict(id log.ProducerID) verdict {
	if slices.ContainsFunc(m.completed, func(c completion) bool { return c.txn == id }) {
		return committed
	}
	first, over, known := m.owner(id)
	if known && over {
		return aborted
	}
	if o, ok := m.txnOwners[first]; ok {
		return o.verdict(id)
	}
	return undecided
}

// completedBy tells whether a completed transaction is of a job.
func (m *metadata) completedBy(id log.ProducerID, job string) bool {
	return slices.ContainsFunc(m.completed, func(c completion) bool { return c.txn == id && c.job == job })
}

// clone returns an independent copy that shares reports and ends, which nothing changes.
func (m *metadata) clone() *metadata {
	c := *m
	c.producers, c.owners = maps.Clone(m.producers), maps.Clone(m.owners)
	c.completed = slices.Clone(m.completed)
	c.groups = m.groups.Clone()
	c.named = m.named.clone()
	c.txnOwners = maps.Clone(m.txnOwners)
	c.outcomes = m.outcomes.clone()
	c.jobs = make(map[string]*job, len(m.jobs))
	for name, j := range m.jobs {
		k := *j
		k.checkpoints = slices.Clone(j.checkpoints)
		c.jobs[name] = &k
	}
	return &c
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func sortedOrdered[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
