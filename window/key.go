package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Key is a key in a window: [Start, End) where the window is one of the clock or the
// calendar. A sliding window includes its End, and a session is from the first to
// the last event time it holds.
type Key[K any] struct {
	Key        K
	Start, End time.Time
}

// KeyOf is satisfied by Key[K] alone; it lets a method's result type be inferred.
type KeyOf[K any] interface{ Key[K] }

// String reads as "k@start..end".
func (k Key[K]) String() string {
	return fmt.Sprintf("%v@%s..%s", k.Key, timeText(k.Start.UnixMilli()), timeText(k.End.UnixMilli()))
}

// Range returns bounds lo and hi such that the windows of k that start in
// [from, to) are the keys of k in [lo, hi). Between the two lie windows of
// other keys as well.
func Range[K any](k K, from, to time.Time) (lo, hi Key[K]) {
	return Key[K]{Key: k, Start: from, End: from}, Key[K]{Key: k, Start: to, End: to}
}

// keyHeader is what precedes the key in an encoded Key:
//
//	at  size  field
//	 0     8  start, Unix ms, big-endian with the sign bit flipped
//	 8     8  end, likewise
//	16        the key, as its own codec writes it
//
// So ascending bytes are ascending starts, before 1970 as well, then ends, then
// the key's bytes.
const keyHeader = 16

var (
	errKeyShort = errors.New("window: a window key needs 16 bytes for its window")
	errKeyTime  = errors.New("window: start and end of a window are whole milliseconds")
)

// Codec makes Key a codec.Provider: the window in 16 bytes, then the key as r
// has it. Decoded times are in UTC.
func (Key[K]) Codec(r *codec.Registry) (codec.Codec[Key[K]], error) {
	c, err := r.Of[K]()
	if err != nil {
		return nil, err
	}
	return codec.Func(
		func(dst []byte, k Key[K]) ([]byte, error) {
			if !wholeMs(k.Start) || !wholeMs(k.End) {
				return dst, errKeyTime
			}
			dst = binary.BigEndian.AppendUint64(dst, uint64(k.Start.UnixMilli())^1<<63)
			dst = binary.BigEndian.AppendUint64(dst, uint64(k.End.UnixMilli())^1<<63)
			return c.Append(dst, k.Key)
		},
		func(src []byte) (k Key[K], err error) {
			if len(src) < keyHeader {
				return k, errKeyShort
			}
			k.Start = time.UnixMilli(int64(binary.BigEndian.Uint64(src) ^ 1<<63)).UTC()
			k.End = time.UnixMilli(int64(binary.BigEndian.Uint64(src[8:]) ^ 1<<63)).UTC()
			k.Key, err = c.Decode(src[keyHeader:])
			return k, err
		}), nil
}

// PartitionKey is the key without its window: all windows of a key belong into one
// partition, where they keep their order. It makes Key a topic.Partitioned.
func (Key[K]) PartitionKey(encoded []byte) []byte { return encoded[min(keyHeader, len(encoded)):] }

// wholeMs guards the identity of keys: two starts in one millisecond would
// become one.
func wholeMs(t time.Time) bool { return t.Nanosecond()%int(time.Millisecond) == 0 }
