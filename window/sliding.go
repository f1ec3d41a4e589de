package window

import (
	"iter"
	"slices"
	"time"
)

// Sliding describes windows [start, start+size], both ends included, aligned to
// the records of a key. A record at t makes the window that ends with it,
// [t-size, t], and the one that begins after it, [t+1ms, t+1ms+size], if a record
// of the key is in that. No two windows of a key hold the same records.
func Sliding(size time.Duration) Spec { return Spec{kind: sliding, size: size} }

func (s Spec) checkSliding(f *faults) {
	f.positive("size", s.size)
	if s.offset != 0 {
		f.add("sliding windows are where the records are: there is no offset to move them by")
	}
}

// Slides walks the starts of the sliding windows that hold a record at t, oldest
// first. times are the event times of the records of the key, in ascending order,
// each once, with t among them; those the key has forgotten may be missing.
func (s Spec) Slides(times []int64, t int64) iter.Seq[int64] {
	size := s.SizeMs()
	return func(yield func(int64) bool) {
		// Windows that begin after a record before t, and windows that end with one
		// from t on: two ascending rows of starts from t-size to t.
		at, _ := slices.BinarySearch(times, t)
		after, _ := slices.BinarySearch(times[:at], saturatingAdd(t, -size-1))
		before, ending := times[after:at], times[at:]
		for {
			start, more := EndOfTime, false
			if len(ending) > 0 && ending[0] <= saturatingAdd(t, size) {
				start, more = saturatingAdd(ending[0], -size), true
			}
			if len(before) > 0 && before[0]+1 <= start {
				if before[0]+1 == start {
					ending = ending[1:]
				}
				start, more = before[0]+1, true
				before = before[1:]
			} else if more {
				ending = ending[1:]
			}
			if !more || !yield(start) {
				return
			}
		}
	}
}

// SlidesAfter returns the start of the window that begins after a record at t, and
// whether the first record of its key at t makes it: it has records in it, and was
// not there already as the window that ends with the last of them. Times are those
// of Slides.
func (s Spec) SlidesAfter(times []int64, t int64) (start int64, made bool) {
	if t == EndOfTime {
		return 0, false
	}
	start = t + 1
	end := saturatingAdd(start, s.SizeMs())
	i, _ := slices.BinarySearch(times, start)
	_, ends := slices.BinarySearch(times[i:], end)
	return start, i < len(times) && times[i] <= end && !ends
}

// Forgotten tells whether at watermark w no sliding window that is open, or can
// come, has anything to do with a record at t.
func (s Spec) Forgotten(t, w int64) bool { return s.Closed(saturatingAdd(t, 1), w) }
