package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lanesOfTest are lanes that say one thing after the other, each time that they are asked.
type lanesOfTest struct {
	ordered
	input
	says [][]headOfTest
}

type headOfTest struct {
	time int64
	kind headKind
}

func (l *lanesOfTest) width() int { return len(l.says) }

func (l *lanesOfTest) head(lane int) (time int64, kind headKind) {
	h := l.says[lane][0]
	if len(l.says[lane]) > 1 {
		l.says[lane] = l.says[lane][1:]
	}
	return h.time, h.kind
}

func (l *lanesOfTest) lane(int) heldLane { return nil }

// A lane that had nothing when it was asked has its turn, also where a record came on it
// while others were asked.
func TestRecordsThatComeWhileLanesAreAsked(t *testing.T) {
	record := func(time int64) headOfTest { return headOfTest{time, headRecord} }
	nothing := func(bound int64) headOfTest { return headOfTest{bound, headBound} }
	for _, c := range []struct {
		name  string
		says  [][]headOfTest
		lane  int // -1 where none may be read yet
		limit int64
		waits int
	}{
		{"an older one", [][]headOfTest{{nothing(1), record(5)}, {record(7)}}, -1, 0, 1},
		{"behind the best one", [][]headOfTest{{record(7)}, {nothing(1), record(5)}}, -1, 0, 1},
		{"an older one, and the bound lets go", [][]headOfTest{{nothing(8), record(9)}, {record(7)}, {record(20)}}, 1, 7, 0},
		{"a barrier", [][]headOfTest{{nothing(1), {0, headAgain}}, {record(7)}}, -1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := &Task{inputs: []input{&lanesOfTest{says: c.says}}}
			in, lane, limit, again := task.earliest()
			require.False(t, again)
			require.Len(t, task.awaited, c.waits)
			if c.lane < 0 {
				require.Nil(t, in)
				return
			}
			require.NotNil(t, in)
			require.Equal(t, c.lane, lane)
			require.Equal(t, c.limit, limit)
		})
	}
}
