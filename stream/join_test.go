package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

func pair(l, r string) string { return l + ", " + r }

func leftPair(l, r string, ok bool) string {
	if !ok {
		r = "nil"
	}
	return pair(l, r)
}

func outerPair(l string, okLeft bool, r string, okRight bool) string {
	if !okLeft {
		l = "nil"
	}
	return leftPair(l, r, okRight)
}

// lines renders records as "key: value time".
func lines(records []topic.Record[string, string]) []string {
	all := []string{}
	for _, r := range records {
		key := r.Key
		if r.NoKey {
			key = "nil"
		}
		all = append(all, fmt.Sprintf("%s: %s %d", key, r.Value, r.Time.UnixMilli()))
	}
	return all
}

// Case C-07 (a): each left record gives its matches or one "no match", neither early nor
// twice.
func TestC07JoinGivesMatchesOrOneNoMatch(t *testing.T) {
	left, right := topic.New[string, string]("left"), topic.New[string, string]("right")
	inner, lefts, outer := topic.New[string, string]("inner"), topic.New[string, string]("lefts"), topic.New[string, string]("outer")
	app := stream.New("c07a")
	l, r, w := app.Stream(left), app.Stream(right), window.Within(3*time.Second)
	l.Join(r, w, pair).As("inner").To(inner)
	l.LeftJoin(r, w, leftPair).As("left").To(lefts)
	l.OuterJoin(r, w, outerPair).As("outer").To(outer)
	d := streamtest.New(t, app)
	matched := []string{"1: o1, s1 19000", "1: o1, s2 19000", "1: o1, s3 19000", "2: o2, s1 19000", "5: o5, s5 20000"}
	for _, e := range []string{"1=o1 17000", "2=o2 17000", "5=o5 17000", "6=o6 17000", "3=o3 18000"} {
		sendLine(d.Input(left), e)
	}
	for _, e := range []string{"4=s4 18500", "1=s1 19000", "1=s2 19000", "1=s3 19000", "2=s1 19000", "5=s5 20000"} {
		sendLine(d.Input(right), e)
	}
	for _, out := range []topic.Topic[string, string]{inner, lefts, outer} {
		require.Equal(t, matched, lines(d.Output(out).Records()), out.Name())
	}
	d.Crash()
	sendLine(d.Input(right), "6=s6 20001")
	d.Watermark(at(30000))
	require.Equal(t, matched, lines(d.Output(inner).Records()))
	require.Equal(t, append(slices.Clone(matched), "6: o6, nil 17000", "3: o3, nil 18000"), lines(d.Output(lefts).Records()))
	require.Equal(t, append(slices.Clone(matched), "6: o6, nil 17000", "3: o3, nil 18000", "4: nil, s4 18500", "6: nil, s6 20001"),
		lines(d.Output(outer).Records()))
}

func sendLine(in *streamtest.Input[string, string], line string) {
	var key, value string
	var time int64
	if _, err := fmt.Sscanf(strings.Replace(line, "=", " ", 1), "%s %s %d", &key, &value, &time); err != nil {
		panic(err)
	}
	in.SendAt(at(time), key, value)
}

// Case C-07 (b): grace keeps records open, "no match" is said once, and what is closed is late.
func TestC07JoinGraceAndLateRecords(t *testing.T) {
	left, right := topic.New[string, string]("left"), topic.New[string, string]("right")
	out, late := topic.New[string, string]("out"), topic.New[string, string]("late")
	app := stream.New("c07b").Disorder(time.Hour)
	l := app.Stream(left)
	joined := l.LeftJoin(app.Stream(right), window.Within(10*ms).Grace(10*ms), leftPair)
	joined.To(out)
	l.LateFor(joined).To(late)
	d := streamtest.New(t, app)
	var seen, seenLate int
	for i, row := range []struct {
		step      string
		out, late string
	}{
		{"time 25", "", ""},
		{"L a=1 5", "", ""},
		{"R a=x 12", "a: 1, x 12", ""},
		{"L b=2 5", "", ""},
		{"time 26", "b: 2, nil 5", ""},
		{"R b=y 13", "", ""},
		{"L c=3 4", "", "c: 3 4"},
		{"L d=4 6", "", ""},
		{"time 27", "d: 4, nil 6", ""},
	} {
		kind, rest, _ := strings.Cut(row.step, " ")
		switch kind {
		case "time":
			var time int64
			fmt.Sscan(rest, &time)
			d.Watermark(at(time))
		case "L":
			sendLine(d.Input(left), rest)
		case "R":
			sendLine(d.Input(right), rest)
		}
		require.Equal(t, row.out, strings.Join(lines(since(&seen, d.Output(out).Records())), " "), "row %d", i+1)
		require.Equal(t, row.late, strings.Join(lines(since(&seenLate, d.Output(late).Records())), " "), "row %d", i+1)
		if i%3 == 1 {
			d.Crash()
		}
	}
	require.Zero(t, d.Status().Tasks[0].Late, "what LateFor reads is not counted")
}

// A record without a key matches nothing: a left join keeps it, an inner join counts it.
func TestJoinWithoutKey(t *testing.T) {
	left, right := topic.New[string, string]("left"), topic.New[string, string]("right")
	inner, lefts := topic.New[string, string]("inner"), topic.New[string, string]("lefts")
	app := stream.New("keyless")
	l, r := app.Stream(left).Map(strings.ToUpper), app.Stream(right)
	l.Join(r, window.Within(time.Second), pair).As("inner").To(inner)
	l.LeftJoin(r, window.Within(time.Second), leftPair).As("left").To(lefts)
	d := streamtest.New(t, app)
	d.Input(left).SendRecord(topic.Record[string, string]{NoKey: true, Value: "a", Time: at(10)})
	d.Input(right).SendRecord(topic.Record[string, string]{NoKey: true, Value: "b", Time: at(10)})
	require.Empty(t, d.Output(inner).Records())
	require.Equal(t, []string{"nil: A, nil 10"}, lines(d.Output(lefts).Records()))
	require.EqualValues(t, 3, d.Status().Tasks[0].NoKey)
}

// Case C-12: topics with different numbers of partitions are not paired partition by
// partition: the job is refused, and nothing is read.
func TestC12JoinOfDifferentPartitionCountsIsRefused(t *testing.T) {
	s := topic.New[string, string]("orders").Partitions(2)
	u := topic.New[string, string]("customers").Partitions(3)
	plane, err := checkpoint.Open("node", checkpoint.PlaneOptions{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Close()) })
	app := stream.New("c12")
	app.Stream(s).Join(app.Stream(u), window.Within(time.Second), pair).To(topic.New[string, string]("out"))
	_, err = stream.Start(t.Context(), stream.Env{Plane: plane, Backend: state.Memory(), StateDir: "state"}, app)
	require.ErrorContains(t, err, `topic "orders" with 2 partitions and topic "customers" with 3`)
}

// The sides of a join may come from one topic and meet themselves, and one that has
// another key is shuffled to where the other is.
func TestJoinOfShuffledSides(t *testing.T) {
	in, out := topic.New[string, string]("in").Partitions(3), topic.New[string, string]("out")
	app := stream.New("self").Disorder(time.Hour)
	s := app.Stream(in)
	flipped := s.KeyByKV(func(_, v string) string { return v }).MapKV(func(string, string) string { return "flipped" })
	s.Join(flipped, window.Within(5*ms), pair).To(out)
	d := streamtest.New(t, app)
	want := []string{}
	for i := range 20 {
		d.Input(in).SendAt(at(int64(i)), fmt.Sprint("k", i), fmt.Sprint("k", (i+3)%20))
		if i >= 3 {
			want = append(want, fmt.Sprintf("k%d: k%d, flipped %d", i, (i+3)%20, i))
		}
	}
	got := lines(d.Output(out).Records())
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
}

// A stage that is fed by a join has as many tasks as the join, also where the join's stage gets
// another source after it.
func TestStageBehindJoinThatGrows(t *testing.T) {
	a, b, c := topic.New[string, string]("a").Partitions(3), topic.New[string, string]("b").Partitions(3), topic.New[string, string]("c").Partitions(3)
	all, counts := topic.New[string, string]("all"), topic.New[string, int64]("counts")
	app := stream.New("grows").Disorder(time.Hour)
	first := app.Stream(a).Join(app.Stream(b), window.Within(ms), pair).As("first")
	first.GroupBy(func(v string) string { return v }).Count().As("count").To(counts)
	first.Join(app.Stream(c), window.Within(ms), pair).As("second").To(all)
	d := streamtest.New(t, app)
	for _, in := range []topic.Topic[string, string]{a, b, c} {
		d.Input(in).SendAt(at(5), "k", in.Name())
	}
	require.Equal(t, []string{"k: a, b, c 5"}, lines(d.Output(all).Records()))
	n, _ := d.Output(counts).Latest("a, b")
	require.EqualValues(t, 1, n)
	tasks := map[string]int{}
	for _, task := range d.Status().Tasks {
		tasks[task.Stage]++
	}
	require.Equal(t, map[string]int{"join-first": 3, "count-by": 3}, tasks)
}

// joinEvent is a record of a join as the evaluator sees it.
type joinEvent struct {
	right      bool
	key, value string
	time       int64
}

// A join over random records, stopped and crashed at random, gives what its definition gives:
// with one partition to the very order and the late records, with several and shuffles,
// where nothing may be late, the same results.
func TestRandomJoinsGiveWhatTheyDefine(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range *differentials {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomJoin(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func randomJoin(t *testing.T, rng *rand.Rand) {
	partitions := 1 + rng.IntN(3)*rng.IntN(2)
	kind, from, grace := rng.IntN(3), int64(rng.IntN(20)-12), int64(rng.IntN(3)*4)
	to := from + int64(rng.IntN(15))
	disorder, shuffle := int64(rng.IntN(3)*6), [2]bool{}
	if partitions > 1 || rng.IntN(2) == 0 {
		disorder = 100_000
		shuffle = [2]bool{rng.IntN(2) == 0, rng.IntN(2) == 0}
	}
	t.Logf("partitions %d, kind %d, from %d to %d, grace %d, disorder %d, shuffle %v", partitions, kind, from, to, grace, disorder, shuffle)
	w := window.Between(time.Duration(from)*ms, time.Duration(to)*ms).Grace(time.Duration(grace) * ms)

	topics := [2]topic.Topic[string, string]{topic.New[string, string]("left").Partitions(partitions), topic.New[string, string]("right").Partitions(partitions)}
	out := topic.New[string, string]("out")
	lates := [2]topic.Topic[string, string]{topic.New[string, string]("late-left"), topic.New[string, string]("late-right")}
	app := stream.New("joins").Disorder(time.Duration(disorder) * ms).IdleAfter(-1)
	var sides [2]stream.Stream[string, string]
	for i := range sides {
		sides[i] = app.Stream(topics[i])
		if shuffle[i] {
			sides[i] = sides[i].KeyByKV(func(k, _ string) string { return k })
		}
	}
	var joined stream.Stream[string, string]
	switch kind {
	case 0:
		joined = sides[0].Join(sides[1], w, pair)
	case 1:
		joined = sides[0].LeftJoin(sides[1], w, leftPair)
	default:
		joined = sides[0].OuterJoin(sides[1], w, outerPair)
	}
	joined.To(out)
	for i := range sides {
		sides[i].LateFor(joined).To(lates[i])
	}
	d := streamtest.New(t, app)
	var events []joinEvent // as they are taken: the two inputs are level when the pipeline works
	clock := int64(-60)
	for range 80 + rng.IntN(80) {
		clock += int64(rng.IntN(5))
		e := joinEvent{rng.IntN(2) == 0, fmt.Sprint("k", rng.IntN(3)), fmt.Sprint("v", len(events)), clock - int64(rng.IntN(3)/2)*int64(rng.IntN(30))}
		events = append(events, e)
		side := 0
		if e.right {
			side = 1
		}
		d.Input(topics[side]).SendAt(at(e.time), e.key, e.value)
		d.Process()
		switch rng.IntN(12) {
		case 0:
			d.Checkpoint()
		case 1:
			if disorder < 100_000 {
				d.Checkpoint() // what is read again comes by time, and may be late where it was not
			}
			d.Crash()
		}
	}
	const end = 1_000_000
	d.Watermark(at(end))
	want, wantLate := evaluateJoin(events, kind, from, to, grace, disorder, end)
	got := lines(d.Output(out).Records())
	if disorder >= 100_000 {
		slices.Sort(want)
		slices.Sort(got)
	}
	require.Equal(t, want, got)
	for i := range lates {
		require.Equal(t, wantLate[i], lines(d.Output(lates[i]).Records()), "late of side %d", i)
	}
}

// evaluateJoin computes a join from its definition: rule 5 of the cases.
func evaluateJoin(events []joinEvent, kind int, from, to, grace, disorder, end int64) (out []string, late [2][]string) {
	type kept struct {
		joinEvent
		matched bool
	}
	out, late = []string{}, [2][]string{{}, {}}
	var rows []*kept
	var stream [2]int64
	stream[0], stream[1] = window.Unknown, window.Unknown
	w := int64(window.Unknown)
	closes := func(e joinEvent) int64 { // the first stream time that is past it
		if e.right {
			return e.time + max(-from, 0) + grace + 1
		}
		return e.time + max(to, 0) + grace + 1
	}
	advance := func(to int64) {
		w = max(w, to)
		var closed []*kept
		rows = slices.DeleteFunc(rows, func(r *kept) bool {
			if w < closes(r.joinEvent) {
				return false
			}
			if !r.matched && (kind == 2 || kind == 1 && !r.right) {
				closed = append(closed, r)
			}
			return true
		})
		slices.SortStableFunc(closed, func(a, b *kept) int {
			switch {
			case closes(a.joinEvent) != closes(b.joinEvent):
				return int(closes(a.joinEvent) - closes(b.joinEvent))
			case a.key != b.key:
				return strings.Compare(a.key, b.key)
			case a.right == b.right:
				return 0
			case b.right:
				return -1
			}
			return 1
		})
		for _, r := range closed {
			value := r.value + ", nil"
			if r.right {
				value = "nil, " + r.value
			}
			out = append(out, fmt.Sprintf("%s: %s %d", r.key, value, r.time))
		}
	}
	for _, e := range events {
		side := 0
		if e.right {
			side = 1
		}
		stream[side] = max(stream[side], e.time-disorder)
		advance(min(stream[0], stream[1]))
		if w >= closes(e) {
			late[side] = append(late[side], fmt.Sprintf("%s: %s %d", e.key, e.value, e.time))
			continue
		}
		mine := &kept{joinEvent: e}
		var matches []*kept
		for _, r := range rows {
			l, rt := e, r.joinEvent
			if e.right {
				l, rt = r.joinEvent, e
			}
			if r.right != e.right && r.key == e.key && l.time+from <= rt.time && rt.time <= l.time+to {
				matches = append(matches, r)
			}
		}
		slices.SortStableFunc(matches, func(a, b *kept) int { return int(a.time - b.time) })
		for _, r := range matches {
			r.matched, mine.matched = true, true
			value := e.value + ", " + r.value
			if e.right {
				value = r.value + ", " + e.value
			}
			out = append(out, fmt.Sprintf("%s: %s %d", e.key, value, max(e.time, r.time)))
		}
		rows = append(rows, mine)
	}
	advance(end)
	return out, late
}

// Sides that come from one topic by different ways, some much longer than others and some
// all but dry, keep each other waiting and never for ever: the lanes between the
// stages hold far less than what is read.
func TestJoinDoesNotWaitForEver(t *testing.T) {
	records := 30_000
	if testing.Short() {
		records = 8_000
	}
	plane, err := checkpoint.Open("node", checkpoint.PlaneOptions{FS: vfs.NewMem()})
	require.NoError(t, err)
	n := testNode{plane}
	in, out := topic.New[string, int]("in").Partitions(3), topic.New[string, int]("out").Partitions(2)
	app := stream.New("dry").Disorder(time.Hour).Checkpoint(checkpoint.Every(20 * ms))
	s := app.Stream(in)
	by := func(n int) func(int) string { return func(v int) string { return fmt.Sprint("k", v%n) } }
	first := func(a, _ int) int { return a }
	far := s.KeyBy(by(97)).Join(s.KeyBy(by(97)), window.Within(0), first).As("detour").KeyBy(by(100))
	few := s.Filter(func(v int) bool { return v%1000 == 0 }).KeyBy(by(100))
	sum := func(a, b int) int { return a + b }
	few.Join(far, window.Within(0), sum).As("first").
		Join(s.KeyBy(by(100)), window.Within(0), sum).As("second").To(out)
	p, err := topic.NewProducer(t.Context(), n, in, topic.ProducerOptions{})
	require.NoError(t, err)
	for i := range records {
		require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, int]{Key: fmt.Sprint(i % 7), Value: i, Time: at(int64(i))}, nil))
	}
	require.NoError(t, p.Close())
	job := n.start(t, app)
	require.NoError(t, job.CatchUp(t.Context()))
	got := map[int]int{}
	for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
		require.NoError(t, err)
		got[r.Value]++
	}
	want := map[int]int{}
	for i := 0; i < records; i += 1000 {
		want[3*i]++
	}
	require.Equal(t, want, got)
	require.NoError(t, job.Stop(t.Context()))
	require.NoError(t, plane.Close())
}

// A stream that comes out of a shuffle and is joined with what another shuffle makes of it is
// planned, though its stage would send to itself and is not the first one.
func TestJoinOfAJoinWithItsOwnShuffle(t *testing.T) {
	in, out := topic.New[string, int]("in"), topic.New[string, int]("out")
	sum := func(a, b int) int { return a + b }
	app := stream.New("circle")
	byValue := app.Stream(in).KeyBy(func(v int) string { return fmt.Sprint(v % 2) })
	pairs := byValue.Join(byValue, window.Within(0), sum).As("pairs")
	pairs.Join(pairs.KeyBy(func(v int) string { return fmt.Sprint(v % 3) }), window.Within(0), sum).As("again").To(out)
	d := streamtest.New(t, app)
	d.Input(in).SendAt(at(1), "a", 3)
	d.Input(in).SendAt(at(1), "b", 1)
	d.Watermark(at(100))
	// The pairs of key 1 are 6, 4, 4 and 2; those that get key 1 anew are 4 and 4.
	require.ElementsMatch(t, []int{10, 10, 8, 8, 8, 8, 6, 6}, d.Output(out).Values())
}
