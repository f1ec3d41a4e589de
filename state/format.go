package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/log"
)

// A record of a changelog and an entry of a store have the same key and the same
// value; a record without value is a tombstone and deletes the entry.
//
//	key       0x01  state key                 a value
//	key       0x01  window start  state key   a value in a window table: big-endian
//	                                          int64 with the sign bit flipped, so
//	                                          that byte order is time order
//	key       0x01  queue  time  key          a timer: queue is 0 or 1, time is encoded
//	                                          as a window start; value: uvarint with a
//	                                          bit for each tag
//	key       0x02  window start              without value, in changelogs only: the
//	                                          window has no keys any more. The tombstones
//	                                          of those it had follow, for readers of the
//	                                          log that know nothing of windows
//	key       0x00  'm'                       the mark, in stores only
//
//	value   at  size  field
//	         0     1  format version, 1
//	         1        the codec's encoding
//
//	mark    at  size  field (big-endian)
//	         0     1  format version, 1
//	         1     8  attempt of the target
//	         9     8  checkpoint of the target
//	        17     8  target: offset the store is being brought to
//	        25     4  target: leader epoch
//	        29     8  done: offset below which all is applied
//	        37     4  done: leader epoch
//
// Neither has a checksum of its own: the record batch and the database have.
const (
	kindMeta   = 0x00
	kindValue  = 0x01
	kindClosed = 0x02

	valueVersion = 1
	markVersion  = 1
	markSize     = 41
	windowSize   = 8 // bytes of a window start in a key
)

var (
	markKey = []byte{kindMeta, 'm'}

	// valuesBegin and valuesEnd bound the keys of values, [begin, end).
	valuesBegin = []byte{kindValue}
	valuesEnd   = []byte{kindValue + 1}
)

// AppendWindowKey appends the state key of key in the window that starts at
// start, as WindowTable uses it and Store.Get and Store.Range expect it.
func AppendWindowKey(dst []byte, start int64, key []byte) []byte {
	return append(appendWindowStart(dst, start), key...)
}

func appendWindowStart(dst []byte, start int64) []byte {
	return binary.BigEndian.AppendUint64(dst, encodedStart(start))
}

// encodedStart is the start of a window as a number whose big-endian bytes are in its keys.
func encodedStart(start int64) uint64 { return uint64(start) ^ 1<<63 }

// windowOf is the encoded start of the window of a stored key, 0 where it is too short to
// have one.
func windowOf(stored []byte) uint64 {
	if len(stored) < 1+windowSize {
		return 0
	}
	return binary.BigEndian.Uint64(stored[1:])
}

// appendClosedKey appends the key of the record that says that a window is closed.
func appendClosedKey(dst []byte, start int64) []byte {
	return appendWindowStart(append(dst, kindClosed), start)
}

// parseClosedKey is the inverse; start is as in the keys of the window.
func parseClosedKey(key []byte) (start uint64, err error) {
	if len(key) != 1+windowSize {
		return 0, fmt.Errorf("%w: key %x of a closed window", ErrVersion, key)
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// SplitWindowKey is the inverse of AppendWindowKey; key is part of stateKey.
func SplitWindowKey(stateKey []byte) (start int64, key []byte, err error) {
	if len(stateKey) < windowSize {
		return 0, nil, fmt.Errorf("state: key %x is too short to hold a window start", stateKey)
	}
	return int64(binary.BigEndian.Uint64(stateKey) ^ (1 << 63)), stateKey[windowSize:], nil
}

// StoredKey is the key under which a store has a state key, and a changelog.
func StoredKey(stateKey []byte) []byte { return append([]byte{kindValue}, stateKey...) }

// FirstValue is a key before which a store has no values, and behind which nothing else.
func FirstValue() []byte { return []byte{kindValue} }

// ParseSchema returns the schema in an entry of a store or a record of a changelog; nil where
// the entry is something else.
func ParseSchema(key, value []byte) (schema []byte, err error) {
	if !bytes.HasPrefix(key, schemasBegin) {
		return nil, nil
	}
	return valueBody(value)
}

// ParseChange takes apart a record of a changelog. ok is false for a record that
// is not a change of a value; deleted tells a tombstone. The results are parts of
// key and value.
func ParseChange(key, value []byte) (stateKey, encoded []byte, deleted, ok bool, err error) {
	if len(key) == 0 || key[0] > kindClosed {
		return nil, nil, false, false, fmt.Errorf("%w: changelog key %x", ErrVersion, key)
	}
	if key[0] != kindValue {
		return nil, nil, false, false, nil
	}
	if value == nil {
		return key[1:], nil, true, true, nil
	}
	encoded, err = valueBody(value)
	return key[1:], encoded, false, err == nil, err
}

// valueBody checks the version of a stored value and returns what follows it.
func valueBody(value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != valueVersion {
		return nil, fmt.Errorf("%w: value begins with %x, want %d; was it written by a newer version?", ErrVersion, value[:min(1, len(value))], valueVersion)
	}
	return value[1:], nil
}

// progress is what a store writes of itself: how far it is, and what it is being
// brought to. They differ while a step is under way; see Store.advance.
type progress struct {
	target Mark
	done   log.Position
}

// complete tells whether the store is exactly at its target.
func (p progress) complete() bool { return p.done == p.target.End }

func (p progress) append(dst []byte) []byte {
	dst = append(dst, markVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.target.Attempt))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.target.N))
	for _, pos := range [...]log.Position{p.target.End, p.done} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(pos.Offset))
		dst = binary.BigEndian.AppendUint32(dst, uint32(pos.Epoch))
	}
	return dst
}

var errMark = errors.New("state: the store's mark is damaged")

func parseProgress(b []byte) (progress, error) {
	if len(b) > 0 && b[0] != markVersion {
		return progress{}, fmt.Errorf("%w: the store's mark has version %d, want %d; was it written by a newer version?", ErrVersion, b[0], markVersion)
	}
	if len(b) != markSize {
		return progress{}, fmt.Errorf("%w: %d bytes, want %d", errMark, len(b), markSize)
	}
	position := func(b []byte) log.Position {
		return log.Position{
			Offset: log.Offset(binary.BigEndian.Uint64(b)),
			Epoch:  log.LeaderEpoch(binary.BigEndian.Uint32(b[8:])),
		}
	}
	p := progress{
		target: Mark{
			Attempt: int64(binary.BigEndian.Uint64(b[1:])),
			N:       int64(binary.BigEndian.Uint64(b[9:])),
			End:     position(b[17:]),
		},
		done: position(b[29:]),
	}
	if p.done.Offset < 0 || p.done.Offset > p.target.End.Offset {
		return progress{}, fmt.Errorf("%w: done at %d, target %d", errMark, p.done.Offset, p.target.End.Offset)
	}
	return p, nil
}
