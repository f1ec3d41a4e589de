package stream

import (
	"encoding/binary"
	"errors"

	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// asyncRecord is a record on its way through a MapAsync, as it is in stores.
type asyncRecord[V any] struct {
	time    int64
	w       int64 // watermark of the step's input when the record came
	offset  int64 // of the source record, or -1
	from    topic.TopicPartition
	hasFrom bool // from is known
	noKey   bool
	deleted bool
	tooFar  bool
	headers []byte // encoded; empty where there are none
	value   V
}

// asyncCodec is the encoding of a record on its way in stores and changelogs. Its key there is
// that of a window: the number of the record, by arrival, in place of the window's start, and
// then the record's key, nothing where it has none.
//
//	1 byte   flags: 1 no key, 2 no value, 4 where the record came from is known, 8 its time is too far
//	         ahead of the clock
//	varint   event time, ms since the epoch
//	varint   watermark of the step's input when the record came, ms since the epoch
//	varint   offset of the source record, or -1
//	uvarint  length of the source's topic, the topic, uvarint partition; with flag 4 only
//	uvarint  length of the headers, the headers as in a record batch
//	rest     the value, in its own codec; nothing with flag 2
type asyncCodec[V any] struct {
	value codec.Codec[V]
	layout
}

const (
	asyncNoKey = 1 << iota
	asyncNoValue
	asyncFrom
	asyncTooFar
	asyncFlags = 1<<iota - 1
)

var errAsyncRecord = errors.New("stream: damaged record in the state of a MapAsync")

func (c asyncCodec[V]) Append(dst []byte, r asyncRecord[V]) ([]byte, error) {
	flags := byte(0)
	if r.noKey {
		flags |= asyncNoKey
	}
	if r.deleted {
		flags |= asyncNoValue
	}
	if r.hasFrom {
		flags |= asyncFrom
	}
	if r.tooFar {
		flags |= asyncTooFar
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, r.time)
	dst = binary.AppendVarint(dst, r.w)
	dst = binary.AppendVarint(dst, r.offset)
	if r.hasFrom {
		dst = binary.AppendUvarint(dst, uint64(len(r.from.Topic)))
		dst = append(dst, r.from.Topic...)
		dst = binary.AppendUvarint(dst, uint64(r.from.Partition))
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.headers)))
	dst = append(dst, r.headers...)
	if r.deleted {
		return dst, nil
	}
	return c.value.Append(dst, r.value)
}

func (c asyncCodec[V]) Decode(src []byte) (r asyncRecord[V], err error) {
	if len(src) == 0 || src[0] > asyncFlags {
		return r, errAsyncRecord
	}
	flags := src[0]
	r.noKey, r.deleted, r.hasFrom, r.tooFar = flags&asyncNoKey != 0, flags&asyncNoValue != 0, flags&asyncFrom != 0, flags&asyncTooFar != 0
	src = src[1:]
	for _, field := range []*int64{&r.time, &r.w, &r.offset} {
		v, n := binary.Varint(src)
		if n <= 0 {
			return r, errAsyncRecord
		}
		*field, src = v, src[n:]
	}
	if r.hasFrom {
		name, rest, ok := cutSized(src)
		p, n := binary.Uvarint(rest)
		if !ok || n <= 0 || p > 1<<31-1 {
			return r, errAsyncRecord
		}
		r.from, src = topic.TopicPartition{Topic: string(name), Partition: topic.PartitionID(p)}, rest[n:]
	}
	headers, src, ok := cutSized(src)
	if _, _, err := topic.DecodeHeaders(headers); !ok || len(headers) > 0 && err != nil {
		return r, errAsyncRecord
	}
	r.headers = append(r.headers, headers...)
	if r.deleted {
		if len(src) > 0 {
			return r, errAsyncRecord
		}
		return r, nil
	}
	r.value, err = c.value.Decode(src)
	return r, err
}

// cutSized splits off a field that begins with its length, a uvarint.
func cutSized(src []byte) (field, rest []byte, ok bool) {
	size, n := binary.Uvarint(src)
	if n <= 0 || size > uint64(len(src)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return src[n:end], src[end:], true
}
