package topic

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/log"
)

// The headers in which a record carries its times: Unix milliseconds, in decimal. Of
// several with the same key the last counts; one that is no number counts as none.
const (
	HeaderNotBefore = "thalweg-not-before"
	HeaderExpires   = "thalweg-expires"
)

// timing is which times of its records a topic's readers look at. The zero timing looks
// at none.
type timing struct {
	on        bool
	ttl       int64 // ms; 0 for none
	now       func() time.Time
	onExpired func(partition int, offset int64) // or nil
}

const (
	never  = math.MaxInt64 // Unix ms
	always = math.MinInt64
)

// timing returns what readers of t on n look at.
func (t Topic[K, V]) timing(n Node) timing {
	return timingOf(n, t.Name(), t.Spec(), t.s.get().onExpired)
}

// timingOf returns what readers of a topic look at.
func timingOf(n Node, topic string, spec log.TopicSpec, onExpired func(partition int, offset int64)) timing {
	if !timed(spec) {
		return timing{}
	}
	return timing{on: true, ttl: milliseconds(spec.TimeToLive), now: clockOf(n), onExpired: counted(n, topic, onExpired)}
}

// counted is onExpired for a node that counts too.
func counted(n Node, topic string, onExpired func(partition int, offset int64)) func(partition int, offset int64) {
	c, ok := n.(interface{ CountExpired(TopicPartition) })
	if !ok {
		return onExpired
	}
	return func(partition int, offset int64) {
		c.CountExpired(TopicPartition{Topic: topic, Partition: PartitionID(partition)})
		if onExpired != nil {
			onExpired(partition, offset)
		}
	}
}

// timed tells whether readers of a topic look at the times of records.
func timed(spec log.TopicSpec) bool { return spec.Delayed || spec.TimeToLive > 0 }

// clockOf is the clock of a node that has one.
func clockOf(n Node) func() time.Time {
	if c, ok := n.(interface{ Now() time.Time }); ok {
		return c.Now
	}
	return time.Now
}

// times returns from when on a record is to be read, and until when, Unix ms.
func (t timing) times(recordTime int64, headers []Header) (due, expires int64) {
	due, expires = always, never
	if !t.on {
		return due, expires
	}
	if t.ttl > 0 && recordTime < never-t.ttl {
		expires = recordTime + t.ttl
	}
	for _, h := range headers {
		if h.Key != HeaderNotBefore && h.Key != HeaderExpires {
			continue
		}
		ms, err := strconv.ParseInt(string(h.Value), 10, 64)
		switch {
		case err != nil:
		case h.Key == HeaderNotBefore:
			due = ms
		default:
			expires = ms
		}
	}
	return due, expires
}

// of is times of the record that it stands at.
func (t timing) of(it *log.RecordIterator) (due, expires int64) {
	if !t.on {
		return always, never
	}
	return t.times(it.Time, it.Headers())
}

// passes tells whether the record that it stands at has expired, and tells who counts.
func (t timing) passes(it *log.RecordIterator, partition int) bool {
	if !t.on {
		return false
	}
	if _, expires := t.of(it); expires > t.now().UnixMilli() {
		return false
	}
	if t.onExpired != nil {
		t.onExpired(partition, int64(it.Offset))
	}
	return true
}

// milliseconds is d, rounded up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// explicit returns the times that a record's headers say, or zero.
func (t timing) explicit(headers []Header) (notBefore, expires time.Time) {
	due, end := timing{on: t.on}.times(0, headers)
	if due != always {
		notBefore = time.UnixMilli(due).UTC()
	}
	if end != never {
		expires = time.UnixMilli(end).UTC()
	}
	return notBefore, expires
}

// withTimes returns headers with those of the times that are not zero.
func withTimes(headers []Header, notBefore, expires time.Time) []Header {
	set := func(key string, at time.Time) {
		if at.IsZero() {
			return
		}
		headers = slices.DeleteFunc(slices.Clone(headers), func(h Header) bool { return h.Key == key })
		headers = append(headers, Header{Key: key, Value: strconv.AppendInt(nil, at.UnixMilli(), 10)})
	}
	set(HeaderNotBefore, notBefore)
	set(HeaderExpires, expires)
	return headers
}

// holdback keeps the records of one partition back until they are due, and with them
// all that follow: the order of offsets stays.
type holdback struct {
	timing
	until  int64      // Unix ms: when the record held back is due or expires; 0 while there is none
	at     log.Offset // of that record, to which the reader goes back
	behind log.Offset // the batch that it is in
	part   log.Batch  // the records before it
}

// holds tells whether a record is waited for. Once it is not any more the reader is back
// at it; one that was moved elsewhere meanwhile stays there.
func (h *holdback) holds(r *log.Reader) bool {
	switch {
	case h.until == 0:
		return false
	case r.Offset() == h.at:
	case r.Offset() == h.behind:
		r.Seek(h.at) // what was read is done with
	default:
		h.until = 0
		return false
	}
	if h.until > h.now().UnixMilli() {
		return true
	}
	h.until = 0
	return false
}

// take returns the part of a batch, which r returned last, before its first record that
// is not due. That one is held back from then on. Where it is the very first take
// returns nil.
func (h *holdback) take(r *log.Reader, b *log.Batch) (*log.Batch, error) {
	if !h.on {
		return b, nil
	}
	now := h.now().UnixMilli()
	it := b.Records()
	for first := true; it.Next(); first = false {
		due, expires := h.of(&it)
		if due <= now || expires <= now {
			continue
		}
		h.until, h.at, h.behind = min(due, expires), it.Offset, r.Offset()
		if first {
			h.holds(r)
			return nil, nil
		}
		var err error
		h.part, err = b.Before(it.Offset)
		return &h.part, err
	}
	return b, it.Err()
}

// left is how long to wait before the record that is held back may be looked at: the
// clock is looked at again after a while, since it may jump.
func (h *holdback) left() time.Duration {
	ms := h.until - h.now().UnixMilli()
	return time.Duration(min(max(ms, 0), clockCheck.Milliseconds())) * time.Millisecond
}

// wait returns after left.
func (h *holdback) wait(ctx context.Context) error {
	timer := time.NewTimer(h.left())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clockCheck is how long a clock that is not a timer's is trusted not to have jumped.
const clockCheck = time.Second
