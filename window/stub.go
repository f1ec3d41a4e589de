package window

import (
	"time"

	"github.com/thalweg/thalweg/topic/codec"
)

// Unknown is the watermark before the first record: lower than any event time.
const Unknown int64 = -1 << 63

// EndOfTime is the watermark after the last record of an input that has ended.
const EndOfTime int64 = 1<<63 - 1

// Spec describes aligned windows. Times inside the package are ms since the epoch.
type Spec struct{ size, every, offset, grace int64 }

func Tumbling(size time.Duration) Spec       { panic("todo") }
func Hopping(size, every time.Duration) Spec { panic("todo") }
func (s Spec) Grace(d time.Duration) Spec    { panic("todo") }
func (s Spec) Offset(d time.Duration) Spec   { panic("todo") }
func (s Spec) Err() error                    { panic("todo") }
func (s Spec) String() string                { panic("todo") }

// SizeMs and GraceMs are the settings in milliseconds.
func (s Spec) SizeMs() int64  { panic("todo") }
func (s Spec) GraceMs() int64 { panic("todo") }

// Last is the start of the last (newest) window that holds t. The windows that hold t start at
// Last, Last-every, ... down to First, all > t-size.
func (s Spec) Last(t int64) int64  { panic("todo") }
func (s Spec) First(t int64) int64 { panic("todo") }
func (s Spec) EveryMs() int64      { panic("todo") }

// End is the excluded end of the window that starts at start (saturating).
func (s Spec) End(start int64) int64 { panic("todo") }

// Closed tells whether watermark w closes the window that starts at start: w >= end + grace.
func (s Spec) Closed(start, w int64) bool { panic("todo") }

// Emit says when a windowed aggregate emits.
type Emit struct{ kind int }

var OnClose, OnUpdate Emit // OnClose is the zero value

// Key is a key in a window, [Start, End).
type Key[K any] struct {
	Key        K
	Start, End time.Time
}

// KeyOf is satisfied by Key[K] alone; it lets a method's result type be inferred.
type KeyOf[K any] interface{ Key[K] }

// Codec makes Key a codec.Provider.
func (Key[K]) Codec(r *codec.Registry) (codec.Codec[Key[K]], error) { panic("todo") }

// BoundedDisorder generates the watermark of one source partition.
type BoundedDisorder struct{ Bound int64 }

// Observe takes the event time of the next record and returns the watermark after it and whether it moved.
func (g *BoundedDisorder) Observe(t int64) (w int64, moved bool) { panic("todo") }
func (g *BoundedDisorder) Watermark() int64                      { panic("todo") }

// Merge combines the watermarks of several inputs: the minimum over the active
// ones, never going back; when all are idle the highest any reached (case C-05).
type Merge struct{}

func NewMerge(inputs int) *Merge                                  { panic("todo") }
func (m *Merge) Observe(input int, w int64) (c int64, moved bool) { panic("todo") } // also makes it active
func (m *Merge) Idle(input int) (c int64, moved bool)             { panic("todo") }
func (m *Merge) Active(input int) (c int64, moved bool)           { panic("todo") } // active again at its old watermark
func (m *Merge) Watermark() int64                                 { panic("todo") }
func (m *Merge) AppendState(b []byte) []byte                      { panic("todo") } // for the checkpoint
func (m *Merge) LoadState(b []byte) (rest []byte, err error)      { panic("todo") }
