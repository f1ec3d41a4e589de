package log

import (
	"encoding/binary"
	"fmt"
)

var errHeaders = fmt.Errorf("%w: bad headers", ErrInvalidBatch)

// AppendHeaders appends headers in the encoding of a record batch: a varint with their
// number, then key and value of each, each with its length before it. DecodeHeaders
// reads it.
func AppendHeaders(dst []byte, headers []Header) []byte {
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for _, h := range headers {
		dst = append(binary.AppendVarint(dst, int64(len(h.Key))), h.Key...)
		if h.Value == nil {
			dst = binary.AppendVarint(dst, -1)
			continue
		}
		dst = append(binary.AppendVarint(dst, int64(len(h.Value))), h.Value...)
	}
	return dst
}

// DecodeHeaders is the inverse of AppendHeaders; the rest of b follows them. Values are
// parts of b.
func DecodeHeaders(b []byte) (headers []Header, rest []byte, err error) {
	count, at := readVarint(b, 0)
	// Each takes two bytes at least, so that the count is bounded before it is used.
	if at < 0 || count < 0 || count > int64(len(b)-at)/2 {
		return nil, nil, errHeaders
	}
	if count > 0 {
		headers = make([]Header, 0, count)
	}
	for range count {
		var key, value []byte
		var ok bool
		if key, at, ok = readBytes(b, at); !ok || key == nil {
			return nil, nil, errHeaders
		}
		if value, at, ok = readBytes(b, at); !ok {
			return nil, nil, errHeaders
		}
		headers = append(headers, Header{Key: string(key), Value: value})
	}
	return headers, b[at:], nil
}

// AppendHeaders appends the headers of the present record as the function of that
// name does.
func (it *RecordIterator) AppendHeaders(dst []byte) []byte {
	return append(binary.AppendVarint(dst, int64(it.headerCount)), it.headers...)
}
