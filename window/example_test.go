package window_test

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/window"
)

// An event is in every window whose span holds it; a window closes when the
// watermark is past its end and grace.
func ExampleHopping() {
	s := window.Hopping(10*time.Second, 4*time.Second).Grace(time.Second)
	for start := range s.Starts(9_000) {
		fmt.Printf("[%d, %d) closed at 11000: %v\n", start, s.End(start), s.Closed(start, 11_000))
	}
	fmt.Println(window.Hopping(time.Second, time.Minute).Err())
	// Output:
	// [0, 10000) closed at 11000: true
	// [4000, 14000) closed at 11000: false
	// [8000, 18000) closed at 11000: false
	// window: invalid specification: hopping 1s every 1m0s: windows start every 1m0s but are only 1s long, so events between them would be in none
}

// Two partitions of a source: the slower one decides, until it falls silent.
func ExampleMerge() {
	fast, slow := window.BoundedDisorder{Bound: 5}, window.BoundedDisorder{Bound: 5}
	m := window.NewMerge(2)
	w, _ := fast.Observe(100)
	m.Observe(0, w)
	w, _ = slow.Observe(40)
	fmt.Println(m.Observe(1, w))
	fmt.Println(m.Idle(1))
	// Output:
	// 35 true
	// 95 true
}
