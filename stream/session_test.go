package stream_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// sessionsText renders results of sessions as "key first..last=value @time"; of a deleted row
// the value is "nil".
func sessionsText[V any](records []topic.Record[window.Key[string], V]) []string {
	var all []string
	for _, r := range records {
		value := fmt.Sprint(r.Value)
		if r.Deleted {
			value = "nil"
		}
		all = append(all, fmt.Sprintf("%s %d..%d=%s @%d", r.Key.Key, r.Key.Start.UnixMilli(), r.Key.End.UnixMilli(), value, r.Time.UnixMilli()))
	}
	return all
}

// Case C-03: events exactly one gap apart are one session, whichever key's record moves
// time first, and the process may be killed after any of them.
func TestC03EventsOneGapApart(t *testing.T) {
	type record struct {
		key  string
		time int64
	}
	for i, run := range [][]record{
		{{"a", 1000}, {"c", 1000}, {"b", 1100}, {"a", 1100}, {"c", 1101}, {"b", 1300}},
		{{"a", 1000}, {"c", 1000}, {"a", 1100}, {"b", 1100}, {"c", 1101}, {"b", 1300}},
	} {
		for crash := -1; crash < len(run); crash++ {
			in, out, late := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out"), topic.New[string, int]("late")
			app := stream.New("c03")
			windows := app.Stream(in).GroupByKey().Session(window.Gap(100 * ms))
			windows.Count().To(out)
			windows.Late().To(late)
			d := streamtest.New(t, app)
			seen := 0
			for j, r := range run {
				d.Input(in).SendAt(at(r.time), r.key, 1)
				var want []string
				switch j {
				case 4:
					want = []string{"c 1000..1000=1 @1000"}
				case 5:
					want = []string{"a 1000..1100=2 @1100", "b 1100..1100=1 @1100", "c 1101..1101=1 @1101"}
				}
				require.Equal(t, want, sessionsText(since(&seen, d.Output(out).Records())), "run %d, record %d", i+1, j)
				if crash == j {
					d.Crash()
				}
			}
			d.Watermark(at(1400))
			require.Empty(t, since(&seen, d.Output(out).Records()), "still open")
			d.Watermark(at(1401))
			require.Equal(t, []string{"b 1300..1300=1 @1300"}, sessionsText(since(&seen, d.Output(out).Records())))
			require.Empty(t, d.Output(late).Records())
		}
	}
}

// A record that lies between two sessions makes them one: what OnUpdate emitted of both is
// deleted, their aggregates are merged, the older first, and the record is added.
func TestSessionsBecomeOne(t *testing.T) {
	in, out, changes := topic.New[string, string]("in"), topic.New[window.Key[string], string]("out"), topic.New[window.Key[string], string]("changes")
	app := stream.New("one")
	table := app.Stream(in).GroupByKey().Session(window.Gap(10*ms).Grace(100*ms)).Emit(window.OnUpdate).
		Aggregate(func(a []string, v string) []string { return append(a, v) },
			func(a, b []string) []string { return append(append(a, "+"), b...) })
	table.ToStream().Map(func(a []string) string { return strings.Join(a, "") }).To(out)
	table.Changes().Map(func(c stream.Change[[]string]) string {
		return fmt.Sprintf("%s>%s %t %t", strings.Join(c.Old, ""), strings.Join(c.New, ""), c.Inserted, c.Deleted)
	}).To(changes)
	d := streamtest.New(t, app)
	seen, seenChanges := 0, 0
	for _, row := range []struct {
		time         int64
		value        string
		out, changes []string
	}{
		{30, "x", []string{"k 30..30=x @30"}, []string{"k 30..30=>x true false @30"}},
		{10, "a", []string{"k 10..10=a @10"}, []string{"k 10..10=>a true false @10"}},
		{35, "y", []string{"k 30..30=nil @30", "k 30..35=xy @35"}, []string{"k 30..30=x> false true @30", "k 30..35=>xy true false @35"}},
		{35, "z", []string{"k 30..35=xyz @35"}, []string{"k 30..35=xy>xyz false false @35"}},
		{20, "b", []string{"k 10..10=nil @10", "k 30..35=nil @35", "k 10..35=a+xyzb @35"},
			[]string{"k 10..10=a> false true @10", "k 30..35=xyz> false true @35", "k 10..35=>a+xyzb true false @35"}},
		{145, "n", []string{"k 145..145=n @145"}, []string{"k 145..145=>n true false @145"}}, // 10..35 is open until 145
		{146, "m", []string{"k 145..145=nil @145", "k 145..146=nm @146"}, []string{"k 145..145=n> false true @145", "k 145..146=>nm true false @146"}},
		{35, "l", nil, nil},
	} {
		d.Input(in).SendAt(at(row.time), "k", row.value)
		require.Equal(t, row.out, sessionsText(since(&seen, d.Output(out).Records())), row.value)
		require.Equal(t, row.changes, sessionsText(since(&seenChanges, d.Output(changes).Records())), row.value)
		if row.value == "l" {
			require.EqualValues(t, 1, late(d.Status()))
		}
		d.Crash()
	}
}

// late is how many late records were dropped.
func late(s stream.Status) (n int64) {
	for _, t := range s.Tasks {
		n += t.Late
	}
	return n
}

// A session is open until the watermark is past its last record by gap and grace, for a
// record that joins it too where that would be late for one of its own.
func TestSessionGrace(t *testing.T) {
	in, out, lates := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out"), topic.New[string, int]("late")
	app := stream.New("grace")
	windows := app.Stream(in).GroupByKey().Session(window.Gap(10 * ms).Grace(5 * ms))
	windows.Late().To(lates) // before the aggregation that tells
	windows.Count().To(out)
	d := streamtest.New(t, app)
	seen, seenLate := 0, 0
	for i, row := range []struct {
		key       string
		time      int64
		out, late []string
	}{
		{"a", 0, nil, nil},
		{"x", 15, nil, nil},                        // a is open at 15
		{"a", 0, nil, nil},                         //
		{"x", 16, []string{"a 0..0=2 @0"}, nil},    // and closed at 16
		{"a", 0, nil, []string{"a @0"}},            // of its own it would be closed too
		{"a", 1, nil, nil},                         // of its own it is open until 16
		{"x", 17, []string{"a 1..1=1 @1"}, nil},    //
		{"b", 10, nil, nil},                        // open until 25
		{"x", 24, nil, nil},                        //
		{"b", 1, nil, nil},                         // too old for one of its own, and joins
		{"b", -9, nil, nil},                        // likewise
		{"b", -20, nil, []string{"b @-20"}},        // joins none
		{"x", 26, []string{"b -9..10=3 @10"}, nil}, //
		{"x", 100, []string{"x 15..26=5 @26"}, nil},
		{"x", 116, []string{"x 100..100=1 @100"}, nil},
	} {
		d.Input(in).SendAt(at(row.time), row.key, 1)
		got := sessionsText(since(&seen, d.Output(out).Records()))
		var gone []string
		for _, r := range since(&seenLate, d.Output(lates).Records()) {
			gone = append(gone, fmt.Sprintf("%s @%d", r.Key, r.Time.UnixMilli()))
		}
		require.Equal(t, row.out, got, "row %d", i+1)
		require.Equal(t, row.late, gone, "row %d", i+1)
		d.Crash()
	}
}

// What a session cannot be is a fault with its place.
func TestSessionFaults(t *testing.T) {
	in := topic.New[string, int]("in")
	for want, build := range map[string]func(g stream.Grouped[string, int]){
		"the gap is 0s and must be positive":     func(g stream.Grouped[string, int]) { g.Session(window.Session{}).Count() },
		"the function that tells the gap is nil": func(g stream.Grouped[string, int]) { g.SessionBy(window.GapBy[int](nil)).Count() },
		"none is late by the clock": func(g stream.Grouped[string, int]) {
			late := g.Session(window.Gap(ms).ProcessingTime())
			late.Count()
			late.Late().To(topic.New[string, int]("late"))
		},
		"take an aggregation to know what is late": func(g stream.Grouped[string, int]) {
			g.Session(window.Gap(ms)).Late().To(topic.New[string, int]("late"))
		},
		"needs a function": func(g stream.Grouped[string, int]) {
			g.Session(window.Gap(ms)).Aggregate(func(a, v int) int { return a }, nil)
		},
	} {
		app := stream.New("faults")
		build(app.Stream(in).GroupByKey())
		require.ErrorContains(t, app.Validate(), want)
		require.ErrorContains(t, app.Validate(), "session_test.go:")
	}
}

// Sessions of another gap are not those in the store.
func TestSessionsWithAnotherGap(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	build := func(s window.Session) *stream.Topology {
		app := stream.New("gap")
		app.Stream(in).GroupByKey().Session(s).Count().To(out)
		return app
	}
	d := streamtest.New(t, build(window.Gap(10*ms)))
	d.Input(in).SendAt(at(0), "a", 1)
	d.Checkpoint()
	d.Redeploy(build(window.Gap(10 * ms).Grace(50 * ms))) // which may change
	d.Input(in).SendAt(at(60), "b", 1)
	require.Empty(t, d.Output(out).Records())
	d.Input(in).SendAt(at(61), "b", 1)
	require.Equal(t, []string{"a 0..0=1 @0"}, sessionsText(d.Output(out).Records()))
}

// A function that fails for a record leaves its sessions as they were, whatever it had
// changed of them.
func TestSessionFunctionFails(t *testing.T) {
	in, out := topic.New[string, string]("in"), topic.New[window.Key[string], string]("out")
	letters := topic.New[[]byte, []byte]("letters")
	app := stream.New("fails")
	broken := true
	app.Stream(in).GroupByKey().Session(window.Gap(10*ms).Grace(100*ms)).
		Aggregate(func(a map[string]bool, v string) map[string]bool {
			if a == nil {
				a = map[string]bool{}
			}
			a[v] = true
			if v == "bad" {
				panic(v)
			}
			return a
		}, func(a, b map[string]bool) map[string]bool {
			for k := range b {
				a[k] = true
			}
			if broken && a["x"] && a["y"] {
				broken = false
				panic("merge")
			}
			return a
		}).OnError(stream.Retry(1, stream.DeadLetter(letters))).ToStream().
		Map(func(a map[string]bool) string {
			var all []string
			for k := range a {
				all = append(all, k)
			}
			slices.Sort(all)
			return strings.Join(all, "")
		}).To(out)
	d := streamtest.New(t, app)
	send := d.Input(in)
	send.SendAt(at(0), "k", "x")
	send.SendAt(at(20), "k", "y")
	send.SendAt(at(10), "k", "bad")
	send.SendAt(at(10), "k", "z") // the merge fails once, and is tried again
	send.SendAt(at(500), "k", "bad")
	d.Watermark(at(1000))
	require.Equal(t, []string{"k 0..20=xyz @20"}, sessionsText(d.Output(out).Records()))
	require.Len(t, d.Output(letters).Records(), 2)
}

// definition keeps the open sessions of all keys as sets of records, and works out anew what
// belongs together.
type definition struct {
	gap, grace int64 // gap is that of records without one of their own
	onUpdate   bool
	w          int64
	open       []*definedSession
	results    []string
	late       []string
}

type definedSession struct {
	key     string
	records []definedRecord
	value   string
}

type definedRecord struct{ time, gap int64 }

func (s *definedSession) span() (first, last, until int64) {
	first, last, until = s.records[0].time, s.records[0].time, s.records[0].time+s.records[0].gap
	for _, r := range s.records {
		first, last, until = min(first, r.time), max(last, r.time), max(until, r.time+r.gap)
	}
	return
}

func (d *definition) closesAt(s *definedSession) int64 {
	_, _, until := s.span()
	return until + 1 + d.grace
}

func (d *definition) emit(s *definedSession, value string) {
	first, last, _ := s.span()
	d.results = append(d.results, fmt.Sprintf("%s %d..%d=%s @%d", s.key, first, last, value, last))
}

func (d *definition) advance(w int64) {
	d.w = max(d.w, w)
	slices.SortFunc(d.open, func(a, b *definedSession) int {
		firstA, lastA, _ := a.span()
		firstB, lastB, _ := b.span()
		return cmp.Or(cmp.Compare(d.closesAt(a), d.closesAt(b)), cmp.Compare(lastA, lastB), cmp.Compare(firstA, firstB), cmp.Compare(a.key, b.key))
	})
	for len(d.open) > 0 && d.w >= d.closesAt(d.open[0]) {
		if !d.onUpdate {
			d.emit(d.open[0], d.open[0].value)
		}
		d.open = d.open[1:]
	}
}

func (d *definition) add(key, value string, r definedRecord) {
	made := &definedSession{key: key, records: []definedRecord{r}}
	var joined, rest []*definedSession
	for _, s := range d.open {
		together := s.key == key && slices.ContainsFunc(s.records, func(o definedRecord) bool {
			return o.time <= r.time && r.time-o.time <= o.gap || r.time <= o.time && o.time-r.time <= r.gap
		})
		if together {
			joined = append(joined, s)
		} else {
			rest = append(rest, s)
		}
	}
	slices.SortFunc(joined, func(a, b *definedSession) int {
		firstA, _, _ := a.span()
		firstB, _, _ := b.span()
		return cmp.Compare(firstA, firstB)
	})
	for i, s := range joined {
		made.records = append(made.records, s.records...)
		if made.value += s.value; i > 0 {
			made.value += "|"
		}
	}
	if d.w >= d.closesAt(made) {
		d.late = append(d.late, fmt.Sprintf("%s=%s @%d", key, value, r.time))
		return
	}
	made.value += value
	d.open = append(rest, made)
	if !d.onUpdate {
		return
	}
	first, last, _ := made.span()
	for _, s := range joined {
		if f, l, _ := s.span(); f != first || l != last {
			d.emit(s, "nil")
		}
	}
	d.emit(made, made.value)
}

// Random records, in and out of order, of one gap or of one each, give what sessions are by
// their definition, late records and the order of results too, over crashes at random.
func TestSessionsAreWhatTheyAreDefinedAs(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range *differentials {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { sessionsByDefinition(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func sessionsByDefinition(t *testing.T, rng *rand.Rand) {
	gap, grace, disorder := 1+rng.Int64N(12), rng.Int64N(3)*rng.Int64N(10), rng.Int64N(2)*rng.Int64N(20)
	own, shuffle := rng.IntN(2) == 0, rng.IntN(2) == 0
	m := &definition{gap: gap, grace: grace, onUpdate: rng.IntN(2) == 0, w: window.Unknown}
	t.Logf("gap %d, grace %d, disorder %d, own gaps %v, shuffle %v, on update %v", gap, grace, disorder, own, shuffle, m.onUpdate)
	// A value is "ab7": where a gap of its own is the digits behind.
	in, out, lates := topic.New[string, string]("in"), topic.New[window.Key[string], string]("out"), topic.New[string, string]("late")
	gapOf := func(v string) time.Duration {
		var n int
		_, err := fmt.Sscanf(v[1:], "%d", &n)
		require.NoError(t, err)
		return time.Duration(n) * ms
	}
	app := stream.New("defined").Disorder(time.Duration(disorder) * ms).IdleAfter(-1)
	s := app.Stream(in)
	if shuffle {
		s = s.KeyByKV(func(k string, _ string) string { return k })
	}
	g := s.GroupByKey()
	windows := g.Session(window.Gap(time.Duration(gap) * ms).Grace(time.Duration(grace) * ms))
	if own {
		windows = g.SessionBy(window.GapBy(gapOf).Grace(time.Duration(grace) * ms))
	}
	if m.onUpdate {
		windows = windows.Emit(window.OnUpdate)
	}
	windows.Aggregate(func(a, v string) string { return a + v }, func(a, b string) string { return a + b + "|" }).To(out)
	windows.Late().To(lates)
	d := streamtest.New(t, app)
	clock := int64(-60)
	for i := range 60 + rng.IntN(60) {
		clock += rng.Int64N(5) * rng.Int64N(4)
		when := clock - rng.Int64N(2)*rng.Int64N(40)
		r := definedRecord{when, gap}
		value := string(rune('a'+i%26)) + fmt.Sprint(rng.IntN(20))
		if own {
			r.gap = gapOf(value).Milliseconds()
		}
		key := fmt.Sprint("k", rng.IntN(3))
		d.Input(in).SendAt(at(when), key, value)
		m.advance(when - disorder)
		m.add(key, value, r)
		switch rng.IntN(16) {
		case 0:
			d.Process()
		case 1:
			d.Checkpoint()
		case 2:
			d.Crash()
		}
	}
	d.Watermark(at(1000))
	m.advance(1000)
	require.Equal(t, m.results, sessionsText(d.Output(out).Records()))
	var gone []string
	for _, r := range d.Output(lates).Records() {
		gone = append(gone, fmt.Sprintf("%s=%s @%d", r.Key, r.Value, r.Time.UnixMilli()))
	}
	require.Equal(t, m.late, gone)
}

// The longest gap so far holds the watermark behind sessions back after a restart too: what
// closes then is in time for the windows behind it.
func TestSessionByIsInTimeAfterRestart(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[window.Key[string], int64]("out")
	app := stream.New("gaps").IdleAfter(-1)
	gap := func(v int) time.Duration { return time.Duration(v) * ms }
	app.Stream(in).GroupByKey().SessionBy(window.GapBy(gap)).Count().As("sessions").ToStream().
		GroupByKV(func(k window.Key[string], _ int64) string { return k.Key }).
		Window(window.Tumbling(10 * ms)).Count().As("windows").To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(3), "a", 1000)
	d.Input(in).SendAt(at(500), "b", 1)
	d.Checkpoint()
	d.Crash()
	d.Input(in).SendAt(at(2000), "c", 1)
	d.Watermark(at(5000))
	require.Equal(t, []string{"a [0,10)=1 @3", "b [500,510)=1 @500", "c [2000,2010)=1 @2000"}, counts(d.Output(out).Records()))
}
