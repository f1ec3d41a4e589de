package engine

import (
	"math"
	"sync"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

const (
	// batchRecords is how many records a batch of an exchange holds when it is sent
	// under load; an idle sender sends what it has.
	batchRecords = 256
	// laneCredits bounds the batches of a lane: filled, under way and being read.
	laneCredits = 4
)

// Exchange moves records of one stage to the tasks of the next, by the hash of
// their key. Each pair of a sending and a receiving task has a lane of its own:
// a queue with credits in which records, watermarks and barriers keep their order.
type Exchange[V any] struct {
	o     ExchangeOptions
	lanes [][]*lane[V] // by sender, then receiver

	combine *Combine[V] // nil sends each record
}

// ExchangeOptions describes an exchange.
type ExchangeOptions struct {
	Senders, Receivers int
	KeepValue          bool // some receiver reads the values; else they are not copied
	KeepHeaders        bool // the same for headers
	InOrder            bool // leads to a task that reads its inputs in order, at once or through others
	Straight           bool // of what leads to such a task: records come as their source has them
	Broadcast          bool // each record goes to all receivers, and time to none
}

// NewExchange makes the lanes between senders and receivers.
func NewExchange[V any](o ExchangeOptions) *Exchange[V] {
	senders, receivers := o.Senders, o.Receivers
	x := &Exchange[V]{o: o, lanes: make([][]*lane[V], senders)}
	for i := range x.lanes {
		x.lanes[i] = make([]*lane[V], receivers)
		for j := range x.lanes[i] {
			x.lanes[i][j] = newLane[V]()
		}
	}
	return x
}

// Combine sets that senders put records together. The exchange must not be in order, nor keep
// headers.
func (x *Exchange[V]) Combine(c *Combine[V]) { x.combine = c }

// exchanged is a record in a batch, but for its value.
type exchanged struct {
	time   int64
	offset int64 // of a record that stands for n more -1-n: it comes from several
	hash   uint64
	keyEnd uint32 // with noKey of a record without a key, and tooFar
	origin Origin // ^origin of a record without a value
}

// Bits of keyEnd.
const (
	noKey  = 1 << 31
	tooFar = 1 << 30
)

// end is where the key of the record ends among those of its batch.
func (x *exchanged) end() uint32 { return x.keyEnd &^ (noKey | tooFar) }

// mark is a watermark, or idleness, and its place: before the record at. Or it says that
// the sender is at rest: it has nothing more to send for now. That is behind the records. Or that
// the sender has come to w in its order, where the record has an older time.
type mark struct {
	at    int
	w     int64
	idle  bool
	rest  bool
	order bool
}

type laneBatch[V any] struct {
	records []exchanged
	values  []V    // of the records, where somebody reads them
	keys    []byte // the encoded keys, one after the other
	headers []byte // the same for headers, where any record has some
	ends    []int  // of the headers, by record; shorter where the last ones have none
	marks   []mark
	barrier int64 // follows the records; 0 is none
}

func newLaneBatch[V any]() *laneBatch[V] {
	return &laneBatch[V]{records: make([]exchanged, 0, batchRecords)}
}

// value is that of record i; that of all where nobody reads them.
func (b *laneBatch[V]) value(i int, none *V) *V {
	if len(b.values) == 0 {
		return none
	}
	return &b.values[i]
}

func (b *laneBatch[V]) reset() {
	clear(b.values) // lets go of what they point to
	b.records, b.values, b.keys, b.marks, b.barrier = b.records[:0], b.values[:0], b.keys[:0], b.marks[:0], 0
	b.headers, b.ends = b.headers[:0], b.ends[:0]
}

// addHeaders takes the headers of the newest record.
func (b *laneBatch[V]) addHeaders(m *Meta) {
	for len(b.ends) < len(b.records)-1 {
		b.ends = append(b.ends, len(b.headers))
	}
	b.headers = m.AppendHeaders(b.headers)
	b.ends = append(b.ends, len(b.headers))
}

// describe makes m that of record i.
func (b *laneBatch[V]) describe(i int, m *Meta) {
	r := &b.records[i]
	m.Time, m.Offset, m.Origin, m.Deleted, m.NoKey, m.TooFar = r.time, r.offset, r.origin, r.origin < 0, r.keyEnd&noKey != 0, r.keyEnd&tooFar != 0
	if m.Deleted {
		m.Origin = ^m.Origin
	}
	m.More = 0
	if m.Offset < -1 {
		m.Offset, m.More = -1, uint32(-1-m.Offset)
	}
	if len(b.ends) == 0 {
		m.headers = nil
		return
	}
	b.describeHeaders(i, m)
}

func (b *laneBatch[V]) describeHeaders(i int, m *Meta) {
	switch {
	case i >= len(b.ends):
		m.SetHeaders(nil)
	case i == 0:
		m.SetHeaders(b.headers[:b.ends[0]])
	default:
		m.SetHeaders(b.headers[b.ends[i-1]:b.ends[i]])
	}
}

func (b *laneBatch[V]) empty() bool {
	return len(b.records) == 0 && len(b.marks) == 0 && b.barrier == 0
}

type lane[V any] struct {
	mu       sync.Mutex // guards the fields below; a leaf
	queue    []*laneBatch[V]
	free     []*laneBatch[V]
	made     int
	queued   int   // records in queue
	extra    int   // batches beyond laneCredits, to get out of a circle
	letGo    bool  // there may be no more of them: the sender has to let its other lanes go
	sender   *Task // to be woken when credit returns
	receiver *Task // to be woken when a batch comes
	credit   chan struct{}
}

func newLane[V any]() *lane[V] { return &lane[V]{credit: make(chan struct{}, 1)} }

func (l *lane[V]) send(b *laneBatch[V]) {
	l.mu.Lock()
	l.queue = append(l.queue, b)
	l.queued += len(b.records)
	l.mu.Unlock()
	l.receiver.Signal()
}

func (l *lane[V]) receive() *laneBatch[V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	b := l.queue[0]
	copy(l.queue, l.queue[1:])
	l.queue[len(l.queue)-1] = nil
	l.queue = l.queue[:len(l.queue)-1]
	l.queued -= len(b.records)
	return b
}

func (l *lane[V]) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == 0
}

func (l *lane[V]) giveBack(b *laneBatch[V]) {
	b.reset()
	l.mu.Lock()
	if l.extra > 0 {
		l.extra--
		l.made--
	} else {
		l.free = append(l.free, b)
	}
	l.mu.Unlock()
	l.wakeSender()
}

func (l *lane[V]) wakeSender() {
	select {
	case l.credit <- struct{}{}:
	default:
	}
}

func (l *lane[V]) ends() (sender, receiver *Task) { return l.sender, l.receiver }

// hasCredit tells whether a sender that waits for credit of the lane has it now.
func (l *lane[V]) hasCredit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.letGo || len(l.free) > 0 || l.made < laneCredits+l.extra
}

// relieve gives the lane one more credit, or has its sender let other lanes go.
func (l *lane[V]) relieve() {
	l.mu.Lock()
	if l.extra < maxExtra || l.extra < maxExtraSmall && l.queued < maxExtra*batchRecords {
		l.extra++
	} else {
		l.letGo = true
	}
	l.mu.Unlock()
	l.wakeSender()
}

// acquire returns an empty batch. A task with a goroutine of its own waits for
// credit; a stepped one goes over it, by what one step produces at the most.
func (l *lane[V]) acquire(t *Task) *laneBatch[V] {
	for {
		if b := l.tryAcquire(t); b != nil {
			return b
		}
		t.yieldLanes(l.lets(t))
		if !l.awaitCredit(t) {
			// The attempt is over: what is produced now goes nowhere.
			return newLaneBatch[V]()
		}
	}
}

// awaitCredit waits for a signal that l may have credit; false means that the attempt is over.
func (l *lane[V]) awaitCredit(t *Task) bool {
	if w := t.job.waits; w != nil {
		w.begin(t, wait{credit: l})
		defer w.end(t)
	}
	select {
	case <-l.credit:
		return true
	case <-t.job.done:
		return false
	}
}

// lets tells whether the other lanes of the sender are let go, and counts it.
func (l *lane[V]) lets(t *Task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.letGo {
		return false
	}
	l.letGo = false
	t.counters.Unordered++
	return true
}

// tryAcquire is acquire without waiting; nil when there is no credit.
func (l *lane[V]) tryAcquire(t *Task) *laneBatch[V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free = l.free[:n-1]
		return b
	}
	if l.made < laneCredits+l.extra || t.stepped() {
		l.made++
		return newLaneBatch[V]()
	}
	return nil
}

// Sender is a task's side of an exchange.
type Sender[V any] struct {
	t       *Task
	inOrder bool
	lanes   []*lane[V]
	current []*laneBatch[V]
	sent    []int64 // the watermark each lane has, or will have at its next flush
	order   []int64 // how far each lane knows the order of the sender to be; nil where that does not count
	rest    []bool  // the last the lane was told is that the sender is at rest
	w       int64
	idle    bool // Idle was said and nothing since
	keep    bool
	headers bool
	all     bool // each record goes to every lane

	combiner *combiner[V] // nil sends each record
}

// OpenSender opens the exchange in task t, its i-th sender.
func (x *Exchange[V]) OpenSender(t *Task, i int) *Sender[V] {
	s := &Sender[V]{t: t, inOrder: x.o.InOrder, lanes: x.lanes[i], w: window.Unknown, keep: x.o.KeepValue, headers: x.o.KeepHeaders, all: x.o.Broadcast}
	s.current = make([]*laneBatch[V], len(s.lanes))
	s.sent = make([]int64, len(s.lanes))
	s.rest = make([]bool, len(s.lanes))
	for j, l := range s.lanes {
		l.sender = t
		s.sent[j] = window.Unknown
	}
	if x.o.InOrder && x.o.Straight {
		s.order = make([]int64, len(s.lanes))
		for j := range s.order {
			s.order[j] = math.MinInt64
		}
	}
	if x.combine != nil {
		s.combiner = newCombiner(x.combine, s)
	}
	t.senders = append(t.senders, s)
	return s
}

// Send hands a record to the task that owns its key, or to all.
func (s *Sender[V]) Send(m *Meta, key []byte, v *V) {
	hash := state.Hash(key)
	if s.combiner != nil {
		s.combiner.take(m, hash, key, v)
		return
	}
	s.send(m, hash, key, v)
}

func (s *Sender[V]) send(m *Meta, hash uint64, key []byte, v *V) {
	s.idle = false
	j := 0
	switch {
	case len(s.lanes) == 1:
	case s.all:
		for j := range s.lanes {
			s.put(j, m, hash, key, v)
		}
		return
	case m.NoKey: // belongs to no task
		j = int(uint64(m.Offset) % uint64(len(s.lanes)))
	default:
		j = topic.Partition(key, len(s.lanes))
	}
	s.put(j, m, hash, key, v)
}

// put adds a record to a lane.
func (s *Sender[V]) put(j int, m *Meta, hash uint64, key []byte, v *V) {
	b := s.batch(j)
	if s.sent[j] != s.w {
		s.mark(j, b)
	}
	if s.order != nil && m.Time < s.t.order && s.order[j] != s.t.order {
		s.order[j] = s.t.order
		b.marks = append(b.marks, mark{at: len(b.records), w: s.t.order, order: true})
	}
	s.rest[j] = false
	b.keys = append(b.keys, key...)
	n := len(b.records)
	b.records = b.records[:n+1]
	r := &b.records[n]
	r.time, r.offset, r.hash, r.keyEnd, r.origin = m.Time, m.Offset, hash, uint32(len(b.keys)), m.Origin
	if m.Deleted {
		r.origin = ^r.origin
	}
	if m.More > 0 {
		r.offset = -1 - int64(m.More)
	}
	if m.NoKey {
		r.keyEnd |= noKey
	}
	if m.TooFar {
		r.keyEnd |= tooFar
	}
	if s.keep {
		b.values = append(b.values, *v)
	}
	if s.headers && m.HasHeaders() {
		b.addHeaders(m)
	}
	if n+1 == cap(b.records) {
		s.ship(j)
	}
}

// Watermark moves the sender's watermark. Each lane learns of it before its next
// record, or with the next flush.
func (s *Sender[V]) Watermark(w int64) {
	s.idle = false
	if s.combiner != nil {
		s.combiner.watermark(w)
	} else {
		s.w = w
	}
}

// Idle tells every lane that this sender has nothing to say about time for now.
func (s *Sender[V]) Idle() {
	s.uncombine()
	s.idle = true
	for j := range s.lanes {
		b := s.batch(j)
		if s.sent[j] != s.w {
			s.mark(j, b)
		}
		b.marks = append(b.marks, mark{at: len(b.records), idle: true})
		s.rest[j] = false
		s.sent[j] = window.Unknown // whatever comes next makes the lane active again
		s.ship(j)
	}
}

// uncombine sends what was put together, so that lanes have all there is up to the watermark.
func (s *Sender[V]) uncombine() {
	if s.combiner != nil {
		s.combiner.flush()
	}
}

func (s *Sender[V]) batch(j int) *laneBatch[V] {
	if s.current[j] == nil {
		s.current[j] = s.lanes[j].acquire(s.t)
	}
	return s.current[j]
}

func (s *Sender[V]) mark(j int, b *laneBatch[V]) {
	b.marks = append(b.marks, mark{at: len(b.records), w: s.w})
	s.sent[j], s.rest[j] = s.w, false
}

// markRest says behind what b holds that the sender is at rest.
func (s *Sender[V]) markRest(j int, b *laneBatch[V]) {
	b.marks = append(b.marks, mark{at: len(b.records), rest: true})
	s.rest[j] = true
}

func (s *Sender[V]) ship(j int) {
	s.lanes[j].send(s.current[j])
	s.current[j] = nil
}

// flush sends what the lanes hold, watermarks included, and with rest that this is all
// for now.
func (s *Sender[V]) flush(rest bool) (sent bool) {
	s.uncombine()
	for j := range s.lanes {
		if s.sent[j] != s.w && !s.idle {
			s.mark(j, s.batch(j))
		}
		if rest && s.inOrder && !s.rest[j] {
			s.markRest(j, s.batch(j))
		}
		if b := s.current[j]; b != nil && !b.empty() {
			s.ship(j)
			sent = true
		}
	}
	return sent
}

// yield sends what the lanes hold, on those that have credit: the others have enough to
// read. With rest it says that nothing is to be waited for.
func (s *Sender[V]) yield(rest bool) {
	if !s.inOrder {
		return
	}
	for j := range s.lanes {
		if s.current[j] == nil {
			if s.rest[j] || !rest && (s.idle || s.sent[j] == s.w) {
				continue
			}
			if s.current[j] = s.lanes[j].tryAcquire(s.t); s.current[j] == nil {
				continue
			}
		}
		b := s.current[j]
		if s.sent[j] != s.w && !s.idle {
			s.mark(j, b)
		}
		if rest {
			s.markRest(j, b)
		}
		if !b.empty() {
			s.ship(j)
		}
	}
}

// ordered tells whether the exchange leads to a task that reads in order.
func (s *Sender[V]) ordered() bool { return s.inOrder }

// barrier sends what the lanes hold and barrier n behind it.
func (s *Sender[V]) barrier(n int64) {
	s.uncombine()
	for j := range s.lanes {
		b := s.batch(j)
		if s.sent[j] != s.w && !s.idle {
			s.mark(j, b)
		}
		b.barrier = n
		s.ship(j)
	}
}

type sender interface {
	flush(rest bool) (sent bool)
	yield(rest bool)
	barrier(n int64)
	ordered() bool
}

// Receiver is the other side: it reads the lanes that end in one task.
type Receiver[V any] struct {
	t     *Task
	lanes []*lane[V]
	first int           // number of its first lane among the inputs of the task
	next  int           // the lane to look at first, so that none starves
	rest  []bool        // by lane: its sender is at rest
	heads []laneHead[V] // where the task reads in order
	port  KeyedPort[V]
	meta  Meta

	none   V        // the value of records that come without
	hashes []uint64 // scratch for port.Touch
}

// OpenReceiver opens the exchange in task t, its j-th receiver, in front of port.
func (x *Exchange[V]) OpenReceiver(t *Task, j int, port KeyedPort[V]) {
	r := &Receiver[V]{t: t, first: t.lanes, port: port, rest: make([]bool, len(x.lanes))}
	if t.inOrder {
		r.heads = make([]laneHead[V], len(x.lanes))
		for i := range r.heads {
			r.heads[i].w, r.heads[i].order = window.Unknown, math.MinInt64
		}
	}
	for i := range x.lanes {
		l := x.lanes[i][j]
		l.receiver = t
		r.lanes = append(r.lanes, l)
	}
	if x.o.Broadcast {
		for i := range r.lanes {
			t.timeless = append(t.timeless, r.first+i)
		}
	}
	t.lanes += len(r.lanes)
	t.inputs = append(t.inputs, r)
}

// poll reads one batch from one lane that is not held back by a barrier.
func (r *Receiver[V]) poll() bool {
	for range r.lanes {
		i := r.next
		r.next = (r.next + 1) % len(r.lanes)
		if r.t.aligner.Blocked(r.first + i) {
			continue
		}
		b := r.lanes[i].receive()
		if b == nil {
			continue
		}
		r.process(r.first+i, b)
		barrier := b.barrier
		r.lanes[i].giveBack(b)
		if barrier != 0 && r.t.err == nil {
			r.t.barrierFrom(r.first+i, barrier)
		}
		return true
	}
	return false
}

func (r *Receiver[V]) process(lane int, b *laneBatch[V]) {
	t, m := r.t, &r.meta
	t.meta = m
	if len(b.records)+len(b.marks) > 0 {
		t.moved()
		r.rest[lane-r.first] = false
	}
	if r.port.Touch != nil {
		r.hashes = r.hashes[:0]
		for i := range b.records {
			r.hashes = append(r.hashes, b.records[i].hash)
		}
		r.port.Touch(r.hashes)
	}
	marks, key := b.marks, uint32(0)
	for i := range b.records {
		for len(marks) > 0 && marks[0].at == i {
			r.mark(lane, marks[0])
			marks = marks[1:]
		}
		rec := &b.records[i]
		b.describe(i, m)
		r.port.Push(m, rec.hash, b.keys[key:rec.end()], b.value(i, &r.none))
		key = rec.end()
		if t.err != nil {
			return
		}
	}
	for _, k := range marks {
		r.mark(lane, k)
	}
	t.counters.Records += int64(len(b.records))
}

// mark takes what the sender of a lane says about time, or that it is at rest.
func (r *Receiver[V]) mark(lane int, k mark) {
	switch {
	case k.rest:
		r.rest[lane-r.first] = true
		return
	case k.order:
		if r.heads != nil { // else another exchange behind leads to a task that reads in order
			r.heads[lane-r.first].order = k.w
		}
		return
	}
	if r.heads != nil && !k.idle {
		r.heads[lane-r.first].w = k.w
	}
	r.t.mark(lane, k)
}

func (r *Receiver[V]) atRest() bool {
	for i, l := range r.lanes {
		if !r.rest[i] || !l.empty() || r.heads != nil && r.heads[i].batch != nil {
			return false
		}
	}
	return true
}

// silent adds the lanes of which something may be on its way.
func (r *Receiver[V]) silent(lanes []heldLane) []heldLane {
	for i, l := range r.lanes {
		if !r.rest[i] && !r.t.aligner.Blocked(r.first+i) && (r.heads == nil || r.heads[i].batch == nil) {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// laneHead is how far a lane is that is read record by record.
type laneHead[V any] struct {
	batch *laneBatch[V] // nil when a new one has to be received
	next  int           // record
	mark  int           // next of its marks
	key   uint32        // where the key of the record begins
	w     int64         // watermark of the lane
	order int64         // that the sender had come to when it sent records with older times
}

func (r *Receiver[V]) width() int { return len(r.lanes) }

func (r *Receiver[V]) lane(i int) heldLane { return r.lanes[i] }

func (r *Receiver[V]) head(i int) (time int64, kind headKind) {
	h, lane := &r.heads[i], r.first+i
	if r.t.aligner.Blocked(lane) {
		return 0, headQuiet
	}
	for {
		if h.batch == nil {
			b := r.lanes[i].receive()
			switch {
			case b == nil && r.rest[i]:
				return 0, headQuiet
			case b == nil:
				return h.w, headBound
			}
			h.batch, h.next, h.mark, h.key = b, 0, 0, 0
			if len(b.records)+len(b.marks) > 0 {
				r.t.moved()
				r.rest[i] = false
			}
		}
		b := h.batch
		r.t.meta = &r.meta
		for h.mark < len(b.marks) && b.marks[h.mark].at == h.next {
			h.mark++
			r.mark(lane, b.marks[h.mark-1])
		}
		if h.next < len(b.records) {
			if b.records[h.next].keyEnd&tooFar != 0 {
				return math.MinInt64, headRecord // what comes behind it must not wait for its time
			}
			return max(b.records[h.next].time, h.order), headRecord
		}
		barrier := b.barrier
		h.batch = nil
		r.lanes[i].giveBack(b)
		if barrier != 0 && r.t.err == nil {
			r.t.barrierFrom(lane, barrier)
			return 0, headAgain
		}
	}
}

func (r *Receiver[V]) take(i int, limit int64, n int) (taken int) {
	t, h := r.t, &r.heads[i]
	for taken < n && t.pausing == 0 {
		time, kind := r.head(i)
		if t.err != nil || kind != headRecord || time > limit {
			break
		}
		b := h.batch
		rec := &b.records[h.next]
		t.meta = &r.meta
		b.describe(h.next, &r.meta)
		key := b.keys[h.key:rec.end()]
		v := b.value(h.next, &r.none)
		h.next, h.key = h.next+1, rec.end()
		r.port.Push(&r.meta, rec.hash, key, v)
		taken++
		t.counters.Records++
		if t.err != nil {
			break
		}
	}
	return taken
}

func (r *Receiver[V]) senders() (ids []checkpoint.TaskID) {
	for _, l := range r.lanes {
		ids = append(ids, l.sender.ID)
	}
	return ids
}

// lanesAt takes the watermark of the task's lanes.
func (r *Receiver[V]) lanesAt(w int64) {
	if r.port.Watermark != nil {
		r.port.Watermark(w)
	}
}

func (r *Receiver[V]) close() {}
