package stream

import (
	"encoding/binary"
	"errors"

	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// openSessions are the open sessions of one key, in the order of Until.
type openSessions[A any] struct{ open []openSession[A] }

// openSession is one of them.
type openSession[A any] struct {
	window.Span
	value A

	// timer is when it is looked at next. It is set, and not after the session ends or closes,
	// whichever is next.
	timer int64

	// Where windows emit more than one result and mark them:
	changed bool          // since its last result
	shown   []window.Span // whose results are out: its own, or those of what it was
}

// show makes the session the only one of which a result is out, and returns those that were.
func (s *openSession[A]) show() (shown []window.Span) {
	shown, s.shown, s.changed = s.shown, []window.Span{s.Span}, false
	return shown
}

// sessionsCodec is the encoding of the sessions of a key in stores and changelogs. For each:
//
//	varint   first event time, ms since the epoch
//	uvarint  last less first
//	uvarint  the last time that still joins, less last
//	varint   time of its timer, less last
//	uvarint  number of windows whose results are out, then for each
//	         varint   first, less first
//	         uvarint  last less first
//	uvarint  twice the length of the aggregate, plus one where it has changed since its last result
//	rest     the aggregate, in its own codec
type sessionsCodec[A any] struct {
	value codec.Codec[A]
	layout
}

var errSessions = errors.New("stream: damaged sessions in the state")

func (c sessionsCodec[A]) Append(dst []byte, s openSessions[A]) ([]byte, error) {
	var value []byte
	for _, o := range s.open {
		var err error
		if value, err = c.value.Append(value[:0], o.value); err != nil {
			return dst, err
		}
		dst = binary.AppendVarint(dst, o.First)
		dst = binary.AppendUvarint(dst, uint64(o.Last-o.First))
		dst = binary.AppendUvarint(dst, uint64(o.Until-o.Last))
		dst = binary.AppendVarint(dst, o.timer-o.Last)
		dst = binary.AppendUvarint(dst, uint64(len(o.shown)))
		for _, shown := range o.shown {
			dst = binary.AppendVarint(dst, shown.First-o.First)
			dst = binary.AppendUvarint(dst, uint64(shown.Last-shown.First))
		}
		size := uint64(len(value)) << 1
		if o.changed {
			size |= 1
		}
		dst = append(binary.AppendUvarint(dst, size), value...)
	}
	return dst, nil
}

func (c sessionsCodec[A]) Decode(src []byte) (s openSessions[A], err error) {
	for len(src) > 0 {
		r := numbers{src: src}
		var o openSession[A]
		o.First = r.varint()
		o.Last = o.First + int64(r.uvarint())
		o.Until = o.Last + int64(r.uvarint())
		o.timer = o.Last + r.varint()
		for n := r.uvarint(); n > 0 && !r.damaged; n-- {
			var shown window.Span
			shown.First = o.First + r.varint()
			shown.Last = shown.First + int64(r.uvarint())
			o.shown = append(o.shown, shown)
		}
		size := r.uvarint()
		o.changed = size&1 != 0
		size >>= 1
		if r.damaged || size > uint64(len(r.src)) || o.Last < o.First || o.Until < o.Last {
			return s, errSessions
		}
		if o.value, err = c.value.Decode(r.src[:size]); err != nil {
			return s, err
		}
		s.open = append(s.open, o)
		src = r.src[size:]
	}
	return s, nil
}

// numbers takes variable-length numbers from the front of bytes.
type numbers struct {
	src     []byte
	damaged bool
}

func (r *numbers) varint() int64 {
	v, n := binary.Varint(r.src)
	return took(r, v, n)
}

func (r *numbers) uvarint() uint64 {
	v, n := binary.Uvarint(r.src)
	return took(r, v, n)
}

func took[T any](r *numbers, v T, n int) T {
	if n <= 0 {
		r.damaged = true
		return v
	}
	r.src = r.src[n:]
	return v
}
