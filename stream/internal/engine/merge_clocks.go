package engine

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// What the names of clocks begin with that several tasks may have at different times, also at one
// barrier. The name of a step follows.
const (
	// LongestGap is the longest gap that a step has seen, a varint.
	LongestGap = "longest gap of "
	// EventTimeOf is the state of a Clock of a step that gives event times.
	EventTimeOf = "event time "
	// EndsOf is the watermark up to which a step has given the results of windows that end, a
	// varint.
	EndsOf = "ends of "
	// CallsOf is the watermark that a step with calls has let go on, 8 bytes, big-endian.
	CallsOf = "calls of "
	// ClockOf is how far a step has seen the node's clock go, a varint.
	ClockOf = "clock of "
	// HeldBy is how much a step holds back in the task.
	HeldBy = "held by "
)

// readOf is how far a topic was read that each task reads as a whole, 8 bytes, big-endian.
const readOf = "global "

// merging tells how clocks of one name are made one. Rules are tried in their order.
var merging = []struct {
	prefix string
	merge  func(a, b []byte) (merged []byte, ok bool)
}{
	{"watermark", lower(bigEndian)},
	{LongestGap, higher(varint)},
	{EventTimeOf, lower(bigEndian)},
	{EndsOf, lower(varint)},
	{CallsOf, lower(bigEndian)},
	{ClockOf, higher(varint)},
	{HeldBy, func(_, _ []byte) ([]byte, bool) { return nil, false }},
	{readOf, lower(bigEndian)},
}

// bigEndian reads the number that b begins with.
func bigEndian(b []byte) (int64, bool) {
	if len(b) < 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b)), true
}

func varint(b []byte) (int64, bool) {
	v, n := binary.Varint(b)
	return v, n > 0
}

func lower(decode func([]byte) (int64, bool)) func(a, b []byte) ([]byte, bool) {
	return func(a, b []byte) ([]byte, bool) {
		x, okX := decode(a)
		y, okY := decode(b)
		if x > y {
			a = b
		}
		return a, okX && okY
	}
}

func higher(decode func([]byte) (int64, bool)) func(a, b []byte) ([]byte, bool) {
	return func(a, b []byte) ([]byte, bool) {
		x, okX := decode(a)
		y, okY := decode(b)
		if x < y {
			a = b
		}
		return a, okX && okY
	}
}

// merge makes one of two states of the clock of a name. A clock that says something else in
// one task than in another, and for which there is no rule, begins anew: so does one that
// is behind calls which hold time back in one task more than in another, and it learns of time
// from these.
func merge(name string, a, b []byte) (merged []byte, ok bool) {
	for _, rule := range merging {
		if strings.HasPrefix(name, rule.prefix) {
			return rule.merge(a, b)
		}
	}
	return a, bytes.Equal(a, b)
}

// MergeClocks makes the event time of one task of that of several of one stage, as reports of
// one checkpoint have it. All of them had passed the same barriers, so what they know of
// their senders is the same.
func MergeClocks(states [][]byte) ([]byte, error) {
	merged := make(map[string][]byte)
	anew := make(map[string]bool)
	for _, b := range states {
		clocks, err := decodeClocks(b)
		if err != nil {
			return nil, err
		}
		for name, state := range clocks {
			had, ok := merged[name]
			if !ok {
				had = state
			}
			if merged[name], ok = merge(name, had, state); !ok {
				anew[name] = true
			}
		}
	}
	b := []byte{clocksVersion}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		if anew[name] {
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.AppendUvarint(b, uint64(len(merged[name])))
		b = append(b, merged[name]...)
	}
	return b, nil
}
