package engine

import (
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
	lanes     [][]*lane[V] // by sender, then receiver
	keepValue bool
}

// NewExchange makes the lanes between senders and receivers. Where keepValue is
// false no receiver reads the values, and they are not copied.
func NewExchange[V any](senders, receivers int, keepValue bool) *Exchange[V] {
	x := &Exchange[V]{keepValue: keepValue, lanes: make([][]*lane[V], senders)}
	for i := range x.lanes {
		x.lanes[i] = make([]*lane[V], receivers)
		for j := range x.lanes[i] {
			x.lanes[i][j] = newLane[V]()
		}
	}
	return x
}

type exchanged[V any] struct {
	time    int64
	offset  int64
	hash    uint64
	keyEnd  uint32
	deleted bool
	value   V
}

// mark is a watermark, or idleness, and its place: before the record at.
type mark struct {
	at   int
	w    int64
	idle bool
}

type laneBatch[V any] struct {
	records []exchanged[V]
	keys    []byte // the encoded keys, one after the other
	marks   []mark
	barrier int64 // follows the records; 0 is none
}

func (b *laneBatch[V]) reset() {
	clear(b.records) // lets go of what values point to
	b.records, b.keys, b.marks, b.barrier = b.records[:0], b.keys[:0], b.marks[:0], 0
}

func (b *laneBatch[V]) empty() bool {
	return len(b.records) == 0 && len(b.marks) == 0 && b.barrier == 0
}

type lane[V any] struct {
	mu       sync.Mutex // guards the fields below; a leaf
	queue    []*laneBatch[V]
	free     []*laneBatch[V]
	made     int
	sender   *Task // to be woken when credit returns
	receiver *Task // to be woken when a batch comes
	credit   chan struct{}
}

func newLane[V any]() *lane[V] { return &lane[V]{credit: make(chan struct{}, 1)} }

func (l *lane[V]) send(b *laneBatch[V]) {
	l.mu.Lock()
	l.queue = append(l.queue, b)
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
	return b
}

func (l *lane[V]) giveBack(b *laneBatch[V]) {
	b.reset()
	l.mu.Lock()
	l.free = append(l.free, b)
	l.mu.Unlock()
	select {
	case l.credit <- struct{}{}:
	default:
	}
}

// acquire returns an empty batch. A task with a goroutine of its own waits for
// credit; a stepped one goes over it, by what one step produces at the most.
func (l *lane[V]) acquire(t *Task) *laneBatch[V] {
	for {
		l.mu.Lock()
		if n := len(l.free); n > 0 {
			b := l.free[n-1]
			l.free = l.free[:n-1]
			l.mu.Unlock()
			return b
		}
		if l.made < laneCredits || t.stepped() {
			l.made++
			l.mu.Unlock()
			return &laneBatch[V]{records: make([]exchanged[V], 0, batchRecords)}
		}
		l.mu.Unlock()
		if !t.awaitCredit(l.credit) {
			// The attempt is over: what is produced now goes nowhere.
			return &laneBatch[V]{records: make([]exchanged[V], 0, batchRecords)}
		}
	}
}

// Sender is a task's side of an exchange.
type Sender[V any] struct {
	t       *Task
	lanes   []*lane[V]
	current []*laneBatch[V]
	sent    []int64 // the watermark each lane has, or will have at its next flush
	w       int64
	idle    bool // Idle was said and nothing since
	keep    bool
}

// OpenSender opens the exchange in task t, its i-th sender.
func (x *Exchange[V]) OpenSender(t *Task, i int) *Sender[V] {
	s := &Sender[V]{t: t, lanes: x.lanes[i], w: window.Unknown, keep: x.keepValue}
	s.current = make([]*laneBatch[V], len(s.lanes))
	s.sent = make([]int64, len(s.lanes))
	for j, l := range s.lanes {
		l.sender = t
		s.sent[j] = window.Unknown
	}
	t.senders = append(t.senders, s)
	return s
}

// Send hands a record to the task that owns its key.
func (s *Sender[V]) Send(m *Meta, key []byte, v *V) {
	s.idle = false
	j := 0
	if len(s.lanes) > 1 {
		j = topic.Partition(key, len(s.lanes))
	}
	b := s.batch(j)
	if s.sent[j] != s.w {
		s.mark(j, b)
	}
	b.keys = append(b.keys, key...)
	n := len(b.records)
	b.records = b.records[:n+1]
	r := &b.records[n]
	r.time, r.offset, r.hash, r.keyEnd, r.deleted = m.Time, m.Offset, state.Hash(key), uint32(len(b.keys)), m.Deleted
	if s.keep {
		r.value = *v
	}
	if n+1 == cap(b.records) {
		s.ship(j)
	}
}

// Watermark moves the sender's watermark. Each lane learns of it before its next
// record, or with the next flush.
func (s *Sender[V]) Watermark(w int64) { s.w, s.idle = w, false }

// Idle tells every lane that this sender has nothing to say about time for now.
func (s *Sender[V]) Idle() {
	s.idle = true
	for j := range s.lanes {
		b := s.batch(j)
		if s.sent[j] != s.w {
			s.mark(j, b)
		}
		b.marks = append(b.marks, mark{at: len(b.records), idle: true})
		s.sent[j] = window.Unknown // whatever comes next makes the lane active again
		s.ship(j)
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
	s.sent[j] = s.w
}

func (s *Sender[V]) ship(j int) {
	s.lanes[j].send(s.current[j])
	s.current[j] = nil
}

// flush sends what the lanes hold, watermarks included.
func (s *Sender[V]) flush() (sent bool) {
	for j := range s.lanes {
		if s.sent[j] != s.w && !s.idle {
			s.mark(j, s.batch(j))
		}
		if b := s.current[j]; b != nil && !b.empty() {
			s.ship(j)
			sent = true
		}
	}
	return sent
}

// barrier sends what the lanes hold and barrier n behind it.
func (s *Sender[V]) barrier(n int64) {
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
	flush() (sent bool)
	barrier(n int64)
}

// Receiver is the other side: it reads the lanes that end in one task.
type Receiver[V any] struct {
	t     *Task
	lanes []*lane[V]
	first int // number of its first lane among the inputs of the task
	next  int // the lane to look at first, so that none starves
	port  KeyedPort[V]
	meta  Meta

	hashes []uint64 // scratch for port.Touch
}

// OpenReceiver opens the exchange in task t, its j-th receiver, in front of port.
func (x *Exchange[V]) OpenReceiver(t *Task, j int, port KeyedPort[V]) {
	r := &Receiver[V]{t: t, first: t.lanes, port: port}
	for i := range x.lanes {
		l := x.lanes[i][j]
		l.receiver = t
		r.lanes = append(r.lanes, l)
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
	t.meta, t.lane = m, lane
	if len(b.records)+len(b.marks) > 0 {
		t.moved()
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
			t.mark(lane, marks[0])
			marks = marks[1:]
		}
		rec := &b.records[i]
		m.Time, m.Offset, m.Deleted = rec.time, rec.offset, rec.deleted
		r.port.Push(m, rec.hash, b.keys[key:rec.keyEnd], &rec.value)
		key = rec.keyEnd
		if t.err != nil {
			return
		}
	}
	for _, k := range marks {
		t.mark(lane, k)
	}
	t.counters.Records += int64(len(b.records))
}

// origin names the source partition that lane i of the receiver reads from.
func (r *Receiver[V]) origin(i int) (topic.TopicPartition, bool) {
	if i < r.first || i >= r.first+len(r.lanes) {
		return topic.TopicPartition{}, false
	}
	return r.lanes[i-r.first].sender.origin()
}

func (r *Receiver[V]) senders() (ids []checkpoint.TaskID) {
	for _, l := range r.lanes {
		ids = append(ids, l.sender.ID)
	}
	return ids
}

func (r *Receiver[V]) watermarkPort() (func(int64), func()) { return r.port.Watermark, r.port.Idle }

func (r *Receiver[V]) close() {}
