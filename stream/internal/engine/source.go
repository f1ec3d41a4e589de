package engine

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// sourceRecords is how many records a source pushes in one step, so that a barrier
// does not wait for the end of a large batch.
const sourceRecords = 1024

// SourceOptions describes a source to OpenSource.
type SourceOptions[K, V any] struct {
	Partition *topic.LogPartition
	Reader    *topic.LogReader // positioned where the task starts
	Start     topic.LogPosition
	Stop      topic.LogOffset // the source has ended when it has read up to here; negative is never

	Key       codec.Codec[K] // nil where no operator reads the key
	Value     codec.Codec[V]
	EventTime func(V) time.Time // nil takes the record's own time
	Clock     *Clock            // makes the watermark
	IdleAfter time.Duration     // zero or less is never
	Future    window.Guard      // finds event times far in the future
	Align     window.Alignment  // keeps the source near the job's slowest

	// Says, where it is not nil, finds the watermark that a value says, behind its record.
	Says func(V) (w int64, ok bool)

	// SkipDeleted makes the source go on behind records that were deleted before it read
	// them; otherwise they are a failure.
	SkipDeleted bool

	Step int
	Name string // of the clock

	Feed *Feed // where it is not nil, what writes the partition: marks are passed over
	Ends bool  // with Feed: the source has ended when what is fed has

	// Guard, where it is not nil, calls load, which decodes a record, and tells whether
	// it succeeded. A record for which it did not is passed over.
	Guard func(m *Meta, key, value []byte, load func() error) bool
}

// Source reads one partition of a topic, decodes and pushes its records and makes
// the partition's watermark.
type Source[K, V any] struct {
	t       *Task
	o       SourceOptions[K, V]
	reader  *topic.LogReader
	records topic.RecordIterator
	inBatch bool
	loaded  bool              // the record the iterator is at is decoded, and not pushed yet
	next    topic.LogPosition // of the record to push next, with the leader epoch of the one before
	epoch   topic.LogEpoch    // of the batch

	clock      *Clock
	future     *Future
	aligned    *aligned  // nil where it need not wait for others
	limit      int64     // with aligned: up to this watermark there is no need to ask
	waiting    bool      // it is too far ahead
	quietSince time.Time // zero while there is something to read
	idle       bool
	atEnd      bool // of what there is to read
	ended      bool

	meta  Meta
	key   K
	value V // scratch: what is pushed escapes, and this is one allocation for all
	port  Port[K, V]
	stop  func() // unregisters from the partition

	loading func() error // load, for Guard
}

// OpenSource opens a source in task t in front of port.
func OpenSource[K, V any](t *Task, o SourceOptions[K, V], port Port[K, V]) {
	s := &Source[K, V]{t: t, o: o, reader: o.Reader, next: o.Start, port: port, clock: o.Clock, future: t.OpenFuture(o.Future), aligned: t.align(o.Align), limit: math.MinInt64}
	s.meta.Origin, s.loading = t.OriginOf(o.Partition.Name()), s.load
	s.stop = o.Partition.OnAdvance(t.Signal)
	t.inputs = append(t.inputs, s)
	t.sources++
	s.clock.Register(t, o.Name, port.Watermark)
	t.AddClock(o.Name+" idle", s.saveIdle, s.restoreIdle, s.resumeIdle)
	if s.aligned != nil {
		t.byHand = append(t.byHand, func(int64) { s.aligned.observe(s.clock.Watermark()) })
	}
}

// waits tells whether the source is too far ahead of others to read on.
func (s *Source[K, V]) waits() bool {
	if s.aligned == nil || !s.waiting && s.clock.Watermark() <= s.limit {
		return false
	}
	was := s.waiting
	s.waiting, s.limit = s.aligned.check()
	s.t.unpublished = s.t.unpublished || s.waiting != was
	return s.waiting
}

// tell tells the alignment how far the source is.
func (s *Source[K, V]) tell() {
	if s.aligned != nil {
		s.aligned.observe(s.clock.Watermark())
	}
}

// stopAt is where the source ends; negative while that is nowhere.
func (s *Source[K, V]) stopAt() topic.LogOffset {
	if s.o.Stop < 0 && s.o.Ends {
		return s.o.Feed.End()
	}
	return s.o.Stop
}

func (s *Source[K, V]) isStop(off topic.LogOffset) bool {
	stop := s.stopAt()
	return stop >= 0 && off >= stop
}

func (s *Source[K, V]) poll() bool {
	if s.ended || s.waits() {
		return false
	}
	if !s.inBatch && !s.nextBatch() {
		return false
	}
	s.wake()
	n := 0
	for ; n < sourceRecords && s.t.pausing == 0 && !s.waits() && (s.loaded || s.nextRecord()); n++ {
		if s.loaded = s.t.cut != nil && !s.t.inFront(&s.meta); s.loaded {
			break
		}
		s.push()
		if s.t.err != nil {
			break
		}
		s.tell()
	}
	s.t.counters.Records += int64(n)
	return true
}

// wake notes that there is something to read.
func (s *Source[K, V]) wake() {
	s.quietSince = time.Time{}
	s.idle = false
	s.t.moved()
	s.reading()
}

// reading says that what the task does now it does for a record of this source.
func (s *Source[K, V]) reading() {
	s.t.meta, s.meta.records = &s.meta, &s.records
}

// nextRecord loads the next record of the batch. It is false at the end of the batch or of the source.
func (s *Source[K, V]) nextRecord() bool {
	for {
		if !s.records.Next() {
			s.endBatch()
			return false
		}
		if s.isStop(s.records.Offset) {
			s.endBatch()
			s.end()
			return false
		}
		if s.o.Feed != nil && s.records.Key == nil && s.records.Value == nil {
			s.pass()
			continue
		}
		m := &s.meta
		m.Offset, m.Time, s.t.Running = int64(s.records.Offset), s.records.Time, s.o.Step
		m.NoKey, m.Deleted = s.records.Key == nil, s.records.Value == nil
		if s.o.Guard == nil {
			s.t.Fail(s.o.Step, s.load())
			return s.t.err == nil
		}
		if s.o.Guard(m, s.records.Key, s.records.Value, s.loading) {
			return true
		}
		if s.t.err != nil {
			return false
		}
		s.t.counters.Records++
		s.pass()
	}
}

// pass says that the record the iterator is at is done with.
func (s *Source[K, V]) pass() {
	s.next = topic.LogPosition{Offset: s.records.Offset + 1, Epoch: s.epoch}
}

// load decodes the record the iterator is at.
func (s *Source[K, V]) load() (err error) {
	m := &s.meta
	if s.o.Key != nil && !m.NoKey {
		if s.key, err = s.o.Key.Decode(s.records.Key); err != nil {
			return fmt.Errorf("decode key: %w", err)
		}
	} else {
		var none K
		s.key = none
	}
	if m.Deleted {
		var zero V
		s.value = zero
		if s.o.EventTime != nil {
			m.TooFar = false // what cannot be extracted does not move the clock
			return nil
		}
		return s.future.Judge(m)
	}
	if s.value, err = s.o.Value.Decode(s.records.Value); err != nil {
		return fmt.Errorf("decode value: %w", err)
	}
	if s.o.EventTime != nil {
		m.Time = s.o.EventTime(s.value).UnixMilli()
	}
	return s.future.Judge(m)
}

// push hands the loaded record on: first its event time moves the watermark, then it
// is judged. A watermark that it says itself is behind it.
func (s *Source[K, V]) push() {
	m := &s.meta
	var says int64
	punctuates := false
	if s.o.Says != nil && !m.Deleted {
		says, punctuates = s.o.Says(s.value)
	}
	if m.TooFar || m.Deleted && s.o.EventTime != nil {
		// It does not move the clock.
	} else if w, moved := s.clock.Observe(m.Time); moved && s.port.Watermark != nil {
		s.port.Watermark(w)
	}
	s.port.Push(m, s.key, &s.value)
	if s.t.err != nil {
		return
	}
	s.pass()
	if punctuates && s.future.Punctuates(says) {
		if w, moved := s.clock.Punctuate(says); moved && s.port.Watermark != nil {
			s.port.Watermark(w)
		}
	}
}

func (s *Source[K, V]) atRest() bool { return s.ended || s.waiting || s.atEnd && !s.inBatch }

func (s *Source[K, V]) silent(lanes []heldLane) []heldLane { return lanes }

func (s *Source[K, V]) width() int { return 1 }

// lane is not called: a source has a record or is not waited for.
func (s *Source[K, V]) lane(int) heldLane { return nil }

func (s *Source[K, V]) head(int) (time int64, kind headKind) {
	if s.ended || s.t.lanes > 0 && s.t.aligner.Blocked(s.t.lanes) {
		return 0, headQuiet
	}
	for !s.loaded {
		if s.waits() {
			return 0, headQuiet
		}
		if !s.inBatch {
			if !s.nextBatch() {
				return 0, headQuiet
			}
			s.wake()
		}
		s.reading()
		if s.loaded = s.nextRecord(); s.t.err != nil || s.ended {
			return 0, headQuiet
		}
	}
	if s.meta.TooFar {
		return math.MinInt64, headRecord // what comes behind it must not wait for its time
	}
	return s.meta.Time, headRecord
}

func (s *Source[K, V]) take(_ int, limit int64, n int) (taken int) {
	for taken < n && s.t.pausing == 0 {
		time, kind := s.head(0)
		if s.t.err != nil || kind != headRecord || time > limit {
			break
		}
		s.reading()
		if s.loaded = s.t.cut != nil && !s.t.inFront(&s.meta); s.loaded {
			break
		}
		s.push()
		taken++
		s.t.counters.Records++
		if s.t.err != nil {
			break
		}
		s.tell()
	}
	return taken
}

// readsBefore tells whether there is a record next that is not beyond event time at.
func (s *Source[K, V]) readsBefore(at int64) bool {
	time, kind := s.head(0)
	return kind == headRecord && time <= at
}

// nextBatch gets the next batch of the partition. Where there is none it sees to
// idleness and to the end of a bounded source.
func (s *Source[K, V]) nextBatch() bool {
	b, err := s.reader.Next()
	switch {
	case err == nil:
		s.records, s.epoch, s.inBatch, s.atEnd = b.Records(), b.Epoch, true, false
		return true
	case errors.Is(err, topic.ErrOffsetOutOfRange) && s.next.Offset < s.o.Partition.Start():
		return s.passDeleted() && s.nextBatch()
	case !errors.Is(err, io.EOF):
		s.t.Fail(s.o.Step, fmt.Errorf("read %s: %w", s.o.Partition.Name(), err))
		return false
	}
	s.atEnd = true
	if at := s.reader.Position(); at != s.next { // past markers and aborted records
		s.next = at
		s.t.moved()
	}
	if s.isStop(s.next.Offset) {
		s.end()
		return false
	}
	s.checkIdle()
	return false
}

// passDeleted goes on behind what was deleted, or fails.
func (s *Source[K, V]) passDeleted() bool {
	p := s.o.Partition
	start := p.Start()
	e := &DeletedInputError{Partition: p.Name(), Next: s.next.Offset, Start: start}
	if !s.o.SkipDeleted {
		s.t.Fail(s.o.Step, e)
		return false
	}
	at, err := p.PositionAt(start)
	if err != nil {
		return true // it has moved on meanwhile: look again
	}
	s.t.job.o.Logger.Error("stream: records were deleted before the job read them; it goes on behind them",
		"job", s.t.job.o.Name, "partition", p.Name().String(), "records", e.Lost(), "from", int64(e.Next), "to", int64(start))
	s.t.counters.Deleted += e.Lost()
	s.reader.Seek(start)
	s.next = at
	s.t.moved()
	return true
}

func (s *Source[K, V]) endBatch() {
	if err := s.records.Err(); err != nil {
		s.t.Fail(s.o.Step, fmt.Errorf("read %s: %w", s.o.Partition.Name(), err))
	}
	s.inBatch = false
	if at := s.reader.Offset(); s.stopAt() < 0 || at <= s.stopAt() {
		s.next = s.reader.Position()
	}
}

// end says that no record is to come: every window behind the source may close.
func (s *Source[K, V]) end() {
	s.ended = true
	s.t.moved()
	s.advance(window.EndOfTime)
	s.t.job.sourceEnded()
}

// checkIdle makes the source idle when nothing has come for a while: it then no
// longer holds back the watermark of others.
func (s *Source[K, V]) checkIdle() {
	if s.idle || s.o.IdleAfter <= 0 {
		return
	}
	now := s.t.job.o.Now()
	if s.quietSince.IsZero() {
		s.quietSince = now
		return
	}
	if now.Sub(s.quietSince) >= s.o.IdleAfter {
		s.idle, s.t.unpublished = true, true
		s.t.moved()
		if s.aligned != nil {
			s.aligned.idle()
		}
		if s.port.Idle != nil {
			s.port.Idle()
		}
	}
}

func (s *Source[K, V]) position() checkpoint.Input {
	return checkpoint.Input{Partition: s.o.Partition.Name(), Next: s.next}
}

func (s *Source[K, V]) watermark() int64 { return s.clock.Watermark() }

func (s *Source[K, V]) status() InputStatus {
	return InputStatus{Partition: s.o.Partition.Name(), Watermark: s.clock.Watermark(), Idle: s.idle, Waiting: s.waiting}
}

func (s *Source[K, V]) close() {
	s.stop()
	s.reader.Close()
}

func (s *Source[K, V]) saveIdle(b []byte) []byte {
	if s.idle {
		return append(b, 1)
	}
	return append(b, 0)
}

func (s *Source[K, V]) restoreIdle(b []byte) error {
	if len(b) != 1 {
		return errClocks
	}
	s.idle = b[0] == 1
	return nil
}

func (s *Source[K, V]) resumeIdle() {
	s.tell()
	if !s.idle {
		return
	}
	if s.aligned != nil {
		s.aligned.idle()
	}
	if s.port.Idle != nil {
		s.port.Idle()
	}
}

// advance moves the watermark without a record.
func (s *Source[K, V]) advance(w int64) {
	if s.clock.Advance(w) && s.port.Watermark != nil {
		s.port.Watermark(w)
	}
	s.tell()
}
