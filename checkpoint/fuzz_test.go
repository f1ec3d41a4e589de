package checkpoint

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
)

// What decodes as an entry encodes to the same bytes.
func FuzzDecodeEntry(f *testing.F) {
	for _, e := range slices.Concat(someEntries(), groupEntries(), namedEntries(), txnEntries()) {
		f.Add(encodeEntry(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err != nil {
			return
		}
		if again := encodeEntry(nil, e); !bytes.Equal(b, again) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, e, again)
		}
	})
}

// What decodes as a snapshot encodes to the same bytes. The checksum is made good, so
// that the fuzzer gets past it.
func FuzzDecodeSnapshot(f *testing.F) {
	l := newMetaLog()
	for _, e := range slices.Concat(someEntries(), groupEntries(), namedEntries(), txnEntries()) {
		l.apply(e)
		b := encodeSnapshot(nil, l.m)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sealed(b)
		m, err := decodeSnapshot(b, 7)
		if err != nil {
			return
		}
		if again := encodeSnapshot(nil, m); !bytes.Equal(b, again) {
			t.Fatalf("%x encodes to %x", b, again)
		}
	})
}

// sealed returns the body of a snapshot with its checksum.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(body[:len(body):len(body)], crc32.Checksum(body, castagnoli))
}

// A metadata log of any entries replays without a panic and to the same state from a
// snapshot taken anywhere.
func FuzzReplay(f *testing.F) {
	var all []byte
	for _, e := range slices.Concat(txnEntries(), namedEntries(), groupEntries(), someEntries()) {
		b := encodeEntry(nil, e)
		all = append(append(all, byte(len(b))), b...)
	}
	f.Add(all, uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		m, s := newMetadata(rules{}), newMetadata(rules{})
		for i := int64(0); len(b) > 0; i++ {
			n := min(int(b[0]), len(b)-1)
			e, err := decodeEntry(b[1 : 1+n])
			b = b[1+n:]
			if err != nil {
				return
			}
			m.apply(i, e)
			s.apply(i, e)
			if i == int64(cut) {
				if s, err = decodeSnapshot(encodeSnapshot(nil, m), i); err != nil {
					t.Fatalf("own snapshot: %v", err)
				}
			}
		}
		if !bytes.Equal(encodeSnapshot(nil, m), encodeSnapshot(nil, s)) {
			t.Fatal("the state differs behind a snapshot")
		}
	})
}
