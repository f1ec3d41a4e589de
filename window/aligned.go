package window

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Tumbling describes windows [start, end) of one size that follow each other
// without gap or overlap, aligned to 1970 in UTC plus the offset.
func Tumbling(size time.Duration) Spec { return Spec{size: size, every: size} }

// Hopping describes windows [start, end) of a size that start every so often, so
// that an event is in about size/every of them: start = offset + k*every for every
// whole k, counted from 1970 in UTC. The size need not be a multiple.
func Hopping(size, every time.Duration) Spec { return Spec{size: size, every: every} }

func (s Spec) checkAligned(f *faults) {
	f.positive("size", s.size)
	if s.every != s.size {
		if s.every <= 0 {
			f.add("windows start every %v, which must be positive", s.every)
		}
		if s.every > s.size && s.size > 0 {
			f.add("windows start every %v but are only %v long, so events between them would be in none", s.every, s.size)
		}
		f.whole("start interval", s.every)
	}
	f.whole("offset", s.offset)
}

func (s Spec) describeAligned(b *strings.Builder) {
	if s.every == s.size {
		fmt.Fprintf(b, "tumbling %v", s.size)
	} else {
		fmt.Fprintf(b, "hopping %v every %v", s.size, s.every)
	}
}

// The windows that hold t start at lastAligned(t), one step before it, ... down to
// firstAligned(t).
func (s Spec) lastAligned(t int64) int64 {
	every := s.EveryMs()
	start := saturatingAdd(t, -s.sinceStart(t, every))
	if t > -ordinary {
		return start
	}
	return max(start, s.lowest(every))
}

func (s Spec) firstAligned(t int64) int64 {
	every := s.EveryMs()
	into := s.sinceStart(t, every)
	back := (s.SizeMs() - 1 - into) / every * every // to the oldest that ends after t
	start := saturatingAdd(saturatingAdd(t, -into), -back)
	if t > -ordinary {
		return start
	}
	return max(start, s.lowest(every))
}

// sinceStart is how far t is from the start of the newest window that holds
// it: in [0, every), also for negative times.
func (s Spec) sinceStart(t, every int64) int64 {
	if -ordinary < t && t < ordinary {
		return floorMod(t-s.offset.Milliseconds(), every)
	}
	return floorMod(floorMod(t, every)-floorMod(s.offset.Milliseconds(), every), every)
}

// lowest is the lowest start that every can be taken from without wrapping.
func (s Spec) lowest(every int64) int64 {
	t := math.MinInt64 + every // sinceStart < every: one start is in [t, t+every)
	return t + floorMod(-s.sinceStart(t, every), every)
}
