package engine

import (
	"fmt"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/topic"
)

// outputBytes is the size at which a batch of output is written without waiting
// for the barrier.
const outputBytes = 256 << 10

// Output writes a task's results to the partitions of one topic, inside the
// transaction of the task's generation. What belongs to a generation that is not
// open yet waits in memory.
type Output struct {
	t     *Task
	step  int
	topic string
	parts []outputPartition
	next  int   // partition for records without a key
	bytes int64 // waiting in memory
	wrote bool  // since the last report
}

type outputPartition struct {
	writer *checkpoint.Writer
	full   []*topic.BatchBuilder // in order, waiting for the generation to open
	batch  *topic.BatchBuilder
}

// OpenOutput opens the topic with the given number of partitions for task t.
func (t *Task) OpenOutput(step int, name string, partitions int) (*Output, error) {
	return t.openOutput(step, name, partitions, t.job.session.Writer)
}

// OpenInternalOutput is OpenOutput for a topic that only the job itself reads. What lost
// checkpoints have left in one is cut, as in a changelog, and it is written in
// transactions also by a job that runs at least once.
func (t *Task) OpenInternalOutput(step int, name string, partitions int) (*Output, error) {
	return t.openOutput(step, name, partitions, t.job.session.ChangelogWriter)
}

func (t *Task) openOutput(step int, name string, partitions int, open func(topic.TopicPartition) (*checkpoint.Writer, error)) (*Output, error) {
	o := &Output{t: t, step: step, topic: name, parts: make([]outputPartition, partitions)}
	for i := range o.parts {
		w, err := open(topic.TopicPartition{Topic: name, Partition: topic.PartitionID(i)})
		if err != nil {
			return nil, fmt.Errorf("open output %s: %w", name, err)
		}
		o.parts[i] = outputPartition{writer: w, batch: new(topic.BatchBuilder)}
	}
	t.outputs = append(t.outputs, o)
	return o, nil
}

// Partitions is the number of partitions of the topic.
func (o *Output) Partitions() int { return len(o.parts) }

// Append adds a record to partition p. Key and value are copied; nil is absent.
func (o *Output) Append(p int, timeMs int64, key, value []byte, headers []topic.Header) {
	part := &o.parts[p]
	largest := part.writer.MaxBatchBytes()
	if !fits(part.batch, largest, timeMs, key, value, headers) {
		o.seal(part)
	}
	before := 0
	if part.batch.Len() > 0 {
		before = part.batch.Size()
	}
	part.batch.Add(timeMs, key, value, headers)
	size := part.batch.Size()
	o.bytes += int64(size - before)
	o.t.counters.Emitted++
	if size >= min(outputBytes, largest) {
		o.seal(part)
	}
}

// seal makes the batch of a partition a full one, to be written when the generation is open.
func (o *Output) seal(part *outputPartition) {
	part.full = append(part.full, part.batch)
	part.batch = new(topic.BatchBuilder)
	o.writeFull()
}

// fits tells whether a batch with one more record is no larger than the log takes it. One
// record alone goes into a batch in any case: the log refuses what is too large.
func fits(b *topic.BatchBuilder, largest int, timeMs int64, key, value []byte, headers []topic.Header) bool {
	const most = 64 // bytes of a record besides key, value and headers
	if b.Len() == 0 || len(headers) == 0 && b.Size()+len(key)+len(value)+most <= largest {
		return true
	}
	return b.SizeWith(timeMs, key, value, headers) <= int64(largest)
}

// Spread picks the partition for a record without a key: the same one for as long
// as a batch fills.
func (o *Output) Spread() int {
	if o.parts[o.next].batch.Len() >= 100 {
		o.next = (o.next + 1) % len(o.parts)
	}
	return o.next
}

// writeFull writes the full batches, if the generation is open.
func (o *Output) writeFull() {
	if !o.t.writable() {
		return
	}
	for p := range o.parts {
		part := &o.parts[p]
		for _, b := range part.full {
			o.write(part, b)
			if part.batch.Len() == 0 {
				part.batch = b // reuse its buffer
			}
		}
		clear(part.full)
		part.full = part.full[:0]
	}
}

// flush writes all there is; the generation is open, since its barrier is here.
func (o *Output) flush() {
	o.writeFull()
	for p := range o.parts {
		if part := &o.parts[p]; part.batch.Len() > 0 {
			o.write(part, part.batch)
		}
	}
}

func (o *Output) write(part *outputPartition, b *topic.BatchBuilder) {
	if o.t.err != nil {
		return
	}
	o.bytes -= int64(b.Size())
	if b.Len() == 0 {
		return
	}
	if _, err := part.writer.Write(o.t.generation, b); err != nil {
		o.t.Fail(o.step, fmt.Errorf("write to %s: %w", o.topic, err))
	}
	o.wrote = true
}
