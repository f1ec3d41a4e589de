package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The moves of the coordinator's diagram, and no others.
func TestCoordinatorMoves(t *testing.T) {
	tasks := []TaskID{{"a", 0}, {"b", 0}}
	now, other := ID{2, 5}, ID{1, 5}
	events := map[string]func(c *coordinator) string{
		"trigger":                   func(c *coordinator) string { id, ok := c.trigger(); return fmt.Sprint(id, ok) },
		"report a":                  func(c *coordinator) string { return fmt.Sprint(c.report(now, tasks[0], Report{Moved: true})) },
		"report b":                  func(c *coordinator) string { return fmt.Sprint(c.report(now, tasks[1], Report{})) },
		"report of another attempt": func(c *coordinator) string { return fmt.Sprint(c.report(other, tasks[1], Report{})) },
		"report of a stranger":      func(c *coordinator) string { return fmt.Sprint(c.report(now, TaskID{"c", 0}, Report{})) },
		"accepted":                  func(c *coordinator) string { return fmt.Sprint(c.committed(now, outcomeAccepted)) },
		"accepted of another":       func(c *coordinator) string { return fmt.Sprint(c.committed(other, outcomeAccepted)) },
		"unknown":                   func(c *coordinator) string { return fmt.Sprint(c.committed(now, outcomeUnknown)) },
		"rejected":                  func(c *coordinator) string { return fmt.Sprint(c.committed(now, outcomeRejected)) },
		"fail":                      func(c *coordinator) string { return fmt.Sprint(c.fail()) },
	}
	// How each state is reached from a coordinator whose last checkpoint is 2/4.
	reach := map[string][]string{
		"idle":           nil,
		"collecting":     {"trigger"},
		"collecting b":   {"trigger", "report a"},
		"committing":     {"trigger", "report a", "report b"},
		"idle again":     {"trigger", "report a", "report b", "accepted"},
		"over":           {"fail"},
		"over in flight": {"trigger", "report a", "fail"},
	}
	type answer struct {
		reply string
		state coordinatorState
	}
	const no, noNo = "false", "false false"
	moves := map[string]map[string]answer{
		"idle":           {"trigger": {"2/5 true", coordinatorCollecting}, "fail": {"true", coordinatorOver}},
		"collecting":     {"report a": {no, coordinatorCollecting}, "fail": {"true", coordinatorOver}},
		"collecting b":   {"report b": {"true", coordinatorCommitting}, "fail": {"true", coordinatorOver}},
		"committing":     {"accepted": {"false true", coordinatorIdle}, "unknown": {"true false", coordinatorCommitting}, "rejected": {noNo, coordinatorOver}, "fail": {"true", coordinatorOver}},
		"idle again":     {"trigger": {"2/6 true", coordinatorCollecting}, "fail": {"true", coordinatorOver}},
		"over":           {},
		"over in flight": {},
	}
	for state, path := range reach {
		for name, event := range events {
			c := newCoordinator(2, 4, tasks, rules{})
			for _, e := range path {
				events[e](c)
			}
			from := c.state
			want, legal := moves[state][name]
			reply := event(c)
			if !legal {
				want = answer{map[string]string{"trigger": "0/0 false", "accepted": noNo, "accepted of another": noNo, "unknown": noNo, "rejected": noNo}[name], from}
				if want.reply == "" {
					want.reply = no
				}
			}
			require.Equal(t, want, answer{reply, c.state}, "%s: %s", state, name)
		}
	}
	c := newCoordinator(2, 4, tasks, rules{})
	for _, e := range reach["committing"] {
		events[e](c)
	}
	require.Equal(t, map[TaskID]Report{tasks[0]: {Moved: true}}, c.moved(), "tasks where nothing moved are left out")
}

// The gate opens one checkpoint after the other and lets nothing else through.
func TestGateMoves(t *testing.T) {
	var g gate
	require.ErrorIs(t, g.admits(ID{1, 1}), ErrGeneration)
	g.advance()
	g.seal()
	require.Equal(t, gateShut, g.state)
	g.begin(ID{1, 0})
	for n, want := range []error{ErrGeneration, nil, ErrGeneration} {
		require.ErrorIs(t, g.admits(ID{1, int64(n)}), want)
	}
	require.ErrorIs(t, g.admits(ID{2, 1}), ErrGeneration)
	g.advance()
	require.NoError(t, g.admits(ID{1, 1}), "only a sealed checkpoint is followed by the next")
	g.seal()
	require.ErrorIs(t, g.admits(ID{1, 1}), ErrGeneration)
	g.advance()
	require.NoError(t, g.admits(ID{1, 2}))
	g.close()
	g.seal()
	g.advance()
	require.ErrorIs(t, g.admits(ID{1, 2}), ErrAttemptOver)
}

// In every order in which three inputs can deliver three barriers or end, a task is
// aligned once for each barrier, when all inputs have delivered it or ended, and an
// input is blocked from its barrier until then.
func TestAlignerInEveryOrder(t *testing.T) {
	const inputs, barriers = 3, 3
	histories := 0
	var walk func(a *Aligner, at [inputs]int64, ended [inputs]bool)
	walk = func(a *Aligner, at [inputs]int64, ended [inputs]bool) {
		moved := false
		for i := range inputs {
			require.Equal(t, !ended[i] && at[i] > a.Last(), a.Blocked(i))
			if ended[i] || a.Blocked(i) {
				continue
			}
			for _, end := range []bool{false, true} {
				if !end && at[i] == barriers {
					continue
				}
				moved = true
				b, at, ended := cloneAligner(a), at, ended
				var aligned bool
				if end {
					ended[i] = true
					aligned = b.End(i)
				} else {
					at[i]++
					aligned = b.Barrier(i, at[i])
				}
				// The next barrier is there when one input delivered it and no input still reads before it.
				next, some, all := a.Last()+1, false, true
				for k := range inputs {
					some = some || at[k] >= next
					all = all && (at[k] >= next || ended[k])
				}
				require.Equal(t, some && all, aligned)
				require.Equal(t, some && !all, b.Aligning())
				if aligned {
					require.Equal(t, next, b.Last())
				}
				walk(b, at, ended)
			}
		}
		if !moved {
			histories++
			require.False(t, a.Aligning(), "a task waits for ever")
		}
	}
	walk(NewAligner(inputs), [inputs]int64{}, [inputs]bool{})
	require.Greater(t, histories, 1000)
	t.Logf("%d histories", histories)
}

func cloneAligner(a *Aligner) *Aligner {
	b := *a
	b.inputs = append([]inputState(nil), a.inputs...)
	return &b
}

// Barriers of another attempt, and old ones again, change nothing; a task whose inputs
// have all ended passes each barrier at once.
func TestAlignerDropsWhatIsNotItsOwn(t *testing.T) {
	a := newAligner(ID{2, 4}, 2, rules{})
	require.False(t, a.barrier(0, ID{1, 5}))
	require.False(t, a.barrier(0, ID{3, 5}))
	require.False(t, a.barrier(0, ID{2, 4}))
	require.False(t, a.Aligning())
	require.False(t, a.barrier(0, ID{2, 5}))
	require.True(t, a.Blocked(0))
	require.False(t, a.barrier(1, ID{1, 5}))
	require.False(t, a.barrier(0, ID{2, 5}), "a repetition is not another input's")
	require.True(t, a.barrier(1, ID{2, 5}))
	require.False(t, a.barrier(1, ID{2, 5}))
	require.False(t, a.End(0))
	require.False(t, a.End(1))
	require.True(t, a.barrier(0, ID{2, 6}))
	require.True(t, a.barrier(1, ID{2, 7}))
	require.EqualValues(t, 7, a.Last())
}

// Ids are ordered attempt first.
func TestIDsAreOrderedAttemptFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		a := ID{random.Int64N(3), random.Int64N(3)}
		b := ID{random.Int64N(3), random.Int64N(3)}
		require.Equal(t, a.Attempt*10+a.N < b.Attempt*10+b.N, a.Before(b), "%v %v", a, b)
	}
}
