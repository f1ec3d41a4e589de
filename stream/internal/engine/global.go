package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/thalweg/thalweg/topic"
)

// GlobalOptions describes a topic to OpenGlobal.
type GlobalOptions struct {
	Partitions  []*topic.LogPartition
	Isolation   topic.Isolation
	Compacted   bool // older records may be gone, though newer ones of their keys were not read yet
	SkipDeleted bool // goes on behind records that were deleted before they were read
	Step        int

	// Take takes a record. It is valid during the call.
	Take func(r *topic.RecordIterator) error
}

// global is a topic that a task reads as a whole, besides its inputs: from the beginning
// whenever the task opens, and then what comes.
type global struct {
	t     *Task
	o     GlobalOptions
	parts []*globalPart
}

// globalPart is a partition of it.
type globalPart struct {
	p       *topic.LogPartition
	reader  *topic.LogReader
	records topic.RecordIterator
	inBatch bool
	meta    Meta            // of the record being taken, for failures
	upTo    topic.LogOffset // what opening reads: to the checkpoint, or negative for all there is
	next    topic.LogOffset // to be taken next
	stop    func()
}

// OpenGlobal opens a topic in task t that is to be read as a whole. Before the task takes
// its first record all is taken that there is: when the topic is opened for the first
// time, at that moment; later in the checkpoint that the attempt starts from. Of
// a compacted topic rows could be missing then, so it is always all there is.
// How far each partition is read is part of the checkpoint.
func OpenGlobal(t *Task, o GlobalOptions) {
	g := &global{t: t, o: o}
	for _, p := range o.Partitions {
		part := &globalPart{p: p, upTo: -1, reader: p.Reader(p.Start(), o.Isolation), stop: p.OnAdvance(t.Signal)}
		part.meta.Origin = t.OriginOf(p.Name())
		g.parts = append(g.parts, part)
		t.AddClock(readOf+p.Name().String(),
			func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(part.next)) },
			func(b []byte) error {
				if len(b) != 8 {
					return errClocks
				}
				if !o.Compacted {
					part.upTo = topic.LogOffset(binary.BigEndian.Uint64(b))
				}
				return nil
			}, func() {})
	}
	t.globals = append(t.globals, g)
}

// load takes all that has to be there before the first record.
func (g *global) load() error {
	for _, part := range g.parts {
		for more := true; more; {
			var err error
			if more, err = g.take(part, sourceRecords); err != nil {
				return fmt.Errorf("read %s to its end: record %d: %w", part.p.Name(), part.meta.Offset, err)
			}
		}
		part.upTo = -1
		part.reader.Seek(part.next)
		part.inBatch = false
	}
	g.t.meta = nil
	return g.t.err
}

// poll takes what has come, a bounded number of records.
func (g *global) poll() (worked bool) {
	for _, part := range g.parts {
		before := part.next
		_, err := g.take(part, sourceRecords)
		g.t.Fail(g.o.Step, err)
		if part.next != before {
			worked = true
			g.t.moved()
		}
		if g.t.err != nil {
			break
		}
	}
	return worked
}

// take takes n records of a partition at most, and tells whether there may be more.
func (g *global) take(part *globalPart, n int) (more bool, err error) {
	g.t.meta = &part.meta
	for n > 0 {
		if !part.inBatch {
			b, err := part.reader.Next()
			switch {
			case err == nil:
				part.records, part.inBatch = b.Records(), true
			case errors.Is(err, io.EOF):
				part.next = part.reader.Offset()
				return false, nil
			case errors.Is(err, topic.ErrOffsetOutOfRange) && part.next < part.p.Start():
				if err := g.passDeleted(part); err != nil {
					return false, err
				}
				continue
			default:
				return false, err
			}
		}
		for ; n > 0; n-- {
			if !part.records.Next() {
				if err := part.records.Err(); err != nil {
					return false, err
				}
				part.inBatch, part.next = false, part.reader.Offset()
				break
			}
			if part.upTo >= 0 && part.records.Offset >= part.upTo {
				part.next = part.upTo
				return false, nil
			}
			part.meta.Offset, part.meta.Time = int64(part.records.Offset), part.records.Time
			if err := g.o.Take(&part.records); err != nil {
				return false, err
			}
			part.next = part.records.Offset + 1
			g.t.counters.Records++
		}
		if part.upTo >= 0 && part.next >= part.upTo {
			return false, nil
		}
	}
	return true, nil
}

// passDeleted goes on behind records that were deleted. Those of a partition of which
// nothing was taken yet do not count.
func (g *global) passDeleted(part *globalPart) error {
	start := part.p.Start()
	e := &DeletedInputError{Partition: part.p.Name(), Next: part.next, Start: start}
	if part.next > 0 {
		if !g.o.SkipDeleted {
			return e
		}
		g.t.job.o.Logger.Error("stream: records were deleted before the job read them; it goes on behind them",
			"job", g.t.job.o.Name, "partition", part.p.Name().String(), "records", e.Lost(), "from", int64(part.next), "to", int64(start))
		g.t.counters.Deleted += e.Lost()
	}
	part.reader.Seek(start)
	part.next = start
	return nil
}

func (g *global) close() {
	for _, part := range g.parts {
		part.stop()
		part.reader.Close()
	}
}
