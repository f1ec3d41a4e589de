package engine

import "github.com/thalweg/thalweg/topic"

// Meta is what travels with a record through the operators of a task. Operators
// read it during the push only.
type Meta struct {
	Time    int64  // event time, ms since the epoch
	Offset  int64  // of the source record this one comes from, or -1
	Origin  Origin // where that record is
	Deleted bool   // the record has no value
	NoKey   bool   // the record has no key
	TooFar  bool   // its time is too far ahead of the clock: it is late, wherever event time counts
	More    uint32 // records that this one stands for besides itself; see Combine

	// The headers are those of the source record, where there is one, or encoded.
	records *topic.RecordIterator
	headers []byte
}

// Headers decodes the headers of the record. Values are valid during the push.
func (m *Meta) Headers() []topic.Header {
	switch {
	case m.records != nil:
		return m.records.Headers() // nil where there are none
	case m.headers == nil:
		return nil
	}
	headers, _, _ := topic.DecodeHeaders(m.headers) // we have encoded them
	return headers
}

// HasHeaders tells whether there are any.
func (m *Meta) HasHeaders() bool {
	if m.records != nil {
		return m.records.HasHeaders()
	}
	return m.headers != nil
}

// AppendHeaders appends the encoding of the headers, for SetHeaders; nothing where
// there are none.
func (m *Meta) AppendHeaders(dst []byte) []byte {
	switch {
	case m.records != nil && m.records.HasHeaders():
		return m.records.AppendHeaders(dst)
	case m.records != nil:
		return dst
	}
	return append(dst, m.headers...)
}

// SetHeaders gives the record the headers that b encodes, none where it is empty. b is
// not copied.
func (m *Meta) SetHeaders(b []byte) {
	if len(b) == 0 {
		b = nil
	}
	m.records, m.headers = nil, b
}

// CopyHeaders gives the record the headers of another, as long as those are valid.
func (m *Meta) CopyHeaders(from *Meta) { m.records, m.headers = from.records, from.headers }

// Port is the entrance of an operator, opened for one task. Push hands it a
// record: v is valid during the call, and the operator copies what it keeps.
// Watermark and Idle are nil where nothing behind the port depends on time.
type Port[K, V any] struct {
	Push      func(m *Meta, k K, v *V)
	Watermark func(w int64)
	Idle      func()
}

// KeyedPort is a Port behind a grouping: the key comes encoded, and hashed with
// state.Hash. key is valid during the call.
type KeyedPort[V any] struct {
	Push      func(m *Meta, hash uint64, key []byte, v *V)
	Watermark func(w int64)
	Idle      func()

	// Touch, where it is not nil, is told the hashes of a batch before its records
	// come, so that a large table can be brought nearer to the processor.
	Touch func(hashes []uint64)
}

// FanOut is one port for several.
func FanOut[K, V any](ports []Port[K, V]) Port[K, V] {
	if len(ports) == 1 {
		return ports[0]
	}
	out := Port[K, V]{Push: func(m *Meta, k K, v *V) {
		for i := range ports {
			ports[i].Push(m, k, v)
		}
	}}
	var watermarks []func(int64)
	var idles []func()
	for _, p := range ports {
		watermarks = appendSet(watermarks, p.Watermark, p.Watermark != nil)
		idles = appendSet(idles, p.Idle, p.Idle != nil)
	}
	out.Watermark, out.Idle = all(watermarks), callAll(idles)
	return out
}

// FanOutKeyed is FanOut behind a grouping.
func FanOutKeyed[V any](ports []KeyedPort[V]) KeyedPort[V] {
	if len(ports) == 1 {
		return ports[0]
	}
	out := KeyedPort[V]{Push: func(m *Meta, hash uint64, key []byte, v *V) {
		for i := range ports {
			ports[i].Push(m, hash, key, v)
		}
	}}
	var watermarks []func(int64)
	var idles []func()
	var touches []func([]uint64)
	for _, p := range ports {
		watermarks = appendSet(watermarks, p.Watermark, p.Watermark != nil)
		idles = appendSet(idles, p.Idle, p.Idle != nil)
		touches = appendSet(touches, p.Touch, p.Touch != nil)
	}
	out.Watermark, out.Idle, out.Touch = all(watermarks), callAll(idles), all(touches)
	return out
}

func appendSet[F any](fs []F, f F, set bool) []F {
	if set {
		return append(fs, f)
	}
	return fs
}

func all[T any](fs []func(T)) func(T) {
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func(v T) {
		for _, f := range fs {
			f(v)
		}
	}
}

func callAll(fs []func()) func() {
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func() {
		for _, f := range fs {
			f()
		}
	}
}
