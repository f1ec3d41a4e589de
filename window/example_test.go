package window_test

import (
	"fmt"
	"slices"
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

// A day is as long as the clock of its zone makes it.
func ExampleDays() {
	saoPaulo, err := time.LoadLocation("America/Sao_Paulo")
	if err != nil {
		panic(err)
	}
	s := window.Days(1, saoPaulo)
	start := s.Last(time.Date(2018, 11, 4, 12, 0, 0, 0, saoPaulo).UnixMilli())
	fmt.Println(time.UnixMilli(start).In(saoPaulo))
	fmt.Println(time.UnixMilli(s.End(start)).In(saoPaulo))
	// Output:
	// 2018-11-04 01:00:00 -0200 -02
	// 2018-11-05 00:00:00 -0200 -02
}

// A record that comes late bridges two sessions.
func ExampleSession_Merge() {
	s := window.Gap(10 * time.Second).Grace(time.Minute)
	var open []window.Span
	for _, t := range []int64{0, 5_000, 18_000, 12_000} {
		merged, from, to, late := s.Merge(open, s.At(t), 18_000)
		if late {
			continue
		}
		open = slices.Replace(open, from, to, merged)
		for _, session := range open {
			fmt.Printf("%d..%d,", session.First, session.Last)
		}
		fmt.Println()
	}
	// Output:
	// 0..0,
	// 0..5000,
	// 0..5000,18000..18000,
	// 0..18000,
}

// A click belongs to an impression at most ten minutes before it.
func ExampleBetween() {
	j := window.Between(0, 10*time.Minute).Grace(5 * time.Second)
	fmt.Println(j.Matches(0, 600_000), j.Matches(0, 600_001), j.Matches(1, 0))
	fmt.Println("an impression waits until", j.LeftClosesAt(0), "and a click until", j.RightClosesAt(0))
	// Output:
	// true false false
	// an impression waits until 605001 and a click until 5001
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
