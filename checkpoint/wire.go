package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/thalweg/thalweg/log"
)

// The encoding has one form per value, so that what decodes encodes back to the
// same bytes: unsigned varints of the shortest form, signed ones zigzag, strings
// and byte slices with their length before them, maps sorted by key.

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[S string | []byte](b []byte, s S) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

func appendPartition(b []byte, tp log.TopicPartition) []byte {
	return appendInt(appendString(b, tp.Topic), int64(tp.Partition))
}

func appendPosition(b []byte, p log.Position) []byte {
	return appendInt(appendInt(b, int64(p.Offset)), int64(p.Epoch))
}

func appendID(b []byte, id ID) []byte { return appendInt(appendInt(b, id.Attempt), id.N) }

func appendTask(b []byte, t TaskID) []byte {
	return appendInt(appendString(b, t.Stage), int64(t.Shard))
}

// decoder reads from b. The first fault sticks: later reads return zero values,
// so that callers check err once.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	u := d.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) int32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("%d does not fit 32 bits", v)
		return 0
	}
	return int32(v)
}

func (d *decoder) bool() bool {
	v := d.uint()
	if v > 1 {
		d.fail("bad bool %d", v)
	}
	return v == 1
}

// bytes returns a slice of the input; a length beyond the input is a fault.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("length %d exceeds the %d bytes left", n, len(d.b))
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads a number of elements of at least size bytes each, so that no count
// is trusted for an allocation the input could not fill.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("count %d exceeds the %d bytes left", n, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) partition() log.TopicPartition {
	return log.TopicPartition{Topic: d.string(), Partition: log.PartitionID(d.int32())}
}

func (d *decoder) position() log.Position {
	return log.Position{Offset: log.Offset(d.int()), Epoch: log.LeaderEpoch(d.int32())}
}

func (d *decoder) id() ID { return ID{Attempt: d.int(), N: d.int()} }

func (d *decoder) task() TaskID { return TaskID{Stage: d.string(), Shard: int(d.int32())} }

// end checks that the input is used up.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return d.err
}

func appendReport(b []byte, r Report) []byte {
	b = appendUint(b, uint64(len(r.Inputs)))
	for _, in := range r.Inputs {
		b = appendPosition(appendPartition(b, in.Partition), in.Next)
	}
	b = appendUint(b, uint64(len(r.Changelogs)))
	for _, c := range r.Changelogs {
		b = appendPosition(appendPartition(b, c.Partition), c.End)
	}
	return appendString(b, r.State)
}

// minPlaced is the least size of a partition with a position: four varints.
const minPlaced = 4

func (d *decoder) report() Report {
	var r Report
	for range d.count(minPlaced) {
		r.Inputs = append(r.Inputs, Input{d.partition(), d.position()})
	}
	for range d.count(minPlaced) {
		r.Changelogs = append(r.Changelogs, Changelog{d.partition(), d.position()})
	}
	if state := d.bytes(); len(state) > 0 {
		r.State = append([]byte(nil), state...)
	}
	return r
}

func appendReports(b []byte, reports map[TaskID]Report) []byte {
	b = appendUint(b, uint64(len(reports)))
	for _, t := range sortedKeys(reports, compareTasks) {
		b = appendReport(appendTask(b, t), reports[t])
	}
	return b
}

func (d *decoder) reports() map[TaskID]Report {
	n := d.count(5) // a task takes 2 bytes or more, a report 3
	reports := make(map[TaskID]Report, n)
	var before TaskID
	for i := range n {
		t := d.task()
		if i > 0 && compareTasks(before, t) >= 0 {
			d.fail("tasks out of order")
		}
		before = t
		reports[t] = d.report()
	}
	return reports
}

func appendEnds(b []byte, ends map[log.TopicPartition]log.Position) []byte {
	b = appendUint(b, uint64(len(ends)))
	for _, tp := range sortedKeys(ends, compareTopicPartitions) {
		b = appendPosition(appendPartition(b, tp), ends[tp])
	}
	return b
}

func (d *decoder) ends() map[log.TopicPartition]log.Position {
	n := d.count(minPlaced)
	ends := make(map[log.TopicPartition]log.Position, n)
	var before log.TopicPartition
	for i := range n {
		tp := d.partition()
		if i > 0 && compareTopicPartitions(before, tp) >= 0 {
			d.fail("partitions out of order")
		}
		before = tp
		ends[tp] = d.position()
	}
	return ends
}
