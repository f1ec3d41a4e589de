package checkpoint

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// violation is a history that ends in something forbidden.
type violation struct {
	trace []string
	err   error
}

func (v *violation) String() string {
	var s strings.Builder
	for i, name := range v.trace {
		fmt.Fprintf(&s, "%4d  %s\n", i+1, name)
	}
	fmt.Fprintf(&s, "   => %v", v.err)
	return s.String()
}

type exploration struct {
	states, steps, rests int
	violation            *violation // the first met, on a shortest history; nil when there is none
}

// explorable is a world: a state of everything that takes part in a protocol.
type explorable interface {
	key(b []byte) []byte // tells it from others
	steps() []step       // all that can happen next
	rest() error         // checks it where nothing but faults can happen
}

// explore walks every history of a world, breadth first.
func explore(w explorable) exploration {
	type visited struct {
		parent int32
		name   string
	}
	var (
		x        exploration
		seen     = map[[16]byte]struct{}{}
		all      []visited
		frontier = []explorable{w}
		ids      = []int32{0}
		buf      []byte
	)
	visit := func(w explorable, parent int32, name string) (id int32, fresh bool) {
		buf = w.key(buf[:0])
		sum := sha256.Sum256(buf)
		k := [16]byte(sum[:16])
		if _, ok := seen[k]; ok {
			return 0, false
		}
		seen[k] = struct{}{}
		all = append(all, visited{parent, name})
		return int32(len(all) - 1), true
	}
	fail := func(at int32, name string, err error) exploration {
		v := &violation{err: err}
		if name != "" {
			v.trace = append(v.trace, name)
		}
		for ; at > 0; at = all[at].parent {
			v.trace = append(v.trace, all[at].name)
		}
		slices.Reverse(v.trace)
		x.states, x.violation = len(all), v
		return x
	}
	visit(w, -1, "")
	for len(frontier) > 0 {
		var next []explorable
		var nextIDs []int32
		for i, w := range frontier {
			atRest := true
			for _, s := range w.steps() {
				x.steps++
				atRest = atRest && s.fault
				if s.err != nil {
					return fail(ids[i], s.name, s.err)
				}
				if id, fresh := visit(s.world, ids[i], s.name); fresh {
					next, nextIDs = append(next, s.world), append(nextIDs, id)
				}
			}
			if atRest {
				x.rests++
				if err := w.rest(); err != nil {
					return fail(ids[i], "", err)
				}
			}
		}
		frontier, ids = next, nextIDs
	}
	x.states = len(all)
	return x
}

var explorerDeep = flag.Bool("explorer.deep", false, "walk the histories with more faults too: minutes")

var explorerBudgets = []budget{
	{crashes: 1, losses: 1, syncs: 1},
	{crashes: 1, timers: 1},
	{restarts: 1, losses: 1},
	{crashes: 1, repeats: 1},
	{crashes: 2},
}

var deepBudgets = []budget{
	{restarts: 1, repeats: 1},
	{restarts: 1, syncs: 1, timers: 1},
	{crashes: 2, losses: 1},
	{crashes: 1, restarts: 1},
}

// Every history of two tasks with crashes, late and repeated messages and attempts that
// do not know that they are over gives each record's effect exactly once.
func TestEveryInterleavingIsExactlyOnce(t *testing.T) {
	// Worlds are small, many and soon garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	budgets := explorerBudgets
	if testing.Short() {
		budgets = budgets[2:3]
	}
	if *explorerDeep {
		budgets = append(budgets, deepBudgets...)
	}
	for _, b := range budgets {
		start := time.Now()
		x := explore(newWorld(rules{}, b))
		t.Logf("%+v: %d states, %d steps, %d at rest, %v", b, x.states, x.steps, x.rests, time.Since(start).Round(time.Millisecond))
		if x.violation != nil {
			t.Fatalf("violation:\n%v", x.violation)
		}
		if x.rests == 0 {
			t.Fatal("no history came to rest")
		}
	}
}

// Each rule of the protocol is needed: with one taken out some history goes wrong.
func TestEveryRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of states, in one goroutine")
	}
	for _, m := range []struct {
		rule string
		out  rules
		left budget // the smallest that shows it
	}{
		{"apply checks the attempt", rules{acceptAnyAttempt: true}, budget{crashes: 1}},
		{"attempt+1 is committed before recovery reads", rules{readBeforeBegin: true}, budget{restarts: 1}},
		{"completed transactions are remembered until marked", rules{rememberNewest: true}, budget{crashes: 1}},
		{"nothing is aborted without an entry", rules{abortUndecided: true}, budget{timers: 1}},
		{"leaders refuse owners that are over", rules{admitEnded: true}, budget{crashes: 1}},
		{"reports are compared by attempt and n, not by n alone", rules{compareNOnly: true}, budget{crashes: 1}},
		{"barriers are compared by attempt and n, not by n alone", rules{alignNOnly: true}, budget{crashes: 1}},
	} {
		t.Run(m.rule, func(t *testing.T) {
			if x := explore(newWorld(rules{}, m.left)); x.violation != nil {
				t.Fatalf("with the rule:\n%v", x.violation)
			}
			x := explore(newWorld(m.out, m.left))
			if x.violation == nil {
				t.Fatalf("%d states, and the rule was never missed", x.states)
			}
			t.Logf("%d states until the shortest history that goes wrong:\n%v", x.states, x.violation)
		})
	}
}
