package window

import (
	"math"
	"time"
)

// Unknown is the watermark before the first record: lower than any event time.
const Unknown int64 = math.MinInt64

// EndOfTime is the watermark after the last record of an input that has ended.
const EndOfTime int64 = math.MaxInt64

// ordinary bounds the times that no setting, a time.Duration, can carry past the
// ends of int64.
const ordinary = 1 << 62

// floorDiv is a division rounded down, for b > 0.
func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

// floorMod is the remainder of a division rounded down: in [0, b) for b > 0.
func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

// saturatingAdd is a+b, or the end of int64 it would have passed.
func saturatingAdd(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
}

// timeText is a time as people read it, in UTC.
func timeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z")
}
