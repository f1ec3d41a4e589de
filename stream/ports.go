package stream

import (
	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

type port[K, V any] = engine.Port[K, V]

func fanOut[K, V any](ports []port[K, V]) port[K, V] {
	if len(ports) == 0 {
		return port[K, V]{Push: func(*engine.Meta, K, *V) {}}
	}
	return engine.FanOut(ports)
}

// opening is a task while its operators are opened.
type opening struct {
	task   *engine.Task
	run    *run
	opened map[int]any // what is open by step, since several ways may lead to one
	tables map[int]any // the rows of tables by step, for those that look them up
	err    error       // first failure

	letters map[string]*letterbox // by topic
}

// merging is a Merge in one task, where several of its inputs may meet.
type merging[K, V any] struct {
	down   port[K, V]
	inputs int
	time   *window.Merge // made when time first moves: all inputs are open then
}

// mergePort opens the merge for one more of its inputs in the task.
func mergePort[K, V any](o *opening, out *node[K, V]) port[K, V] {
	mg, ok := o.opened[out.step.id].(*merging[K, V])
	if !ok {
		mg = &merging[K, V]{down: out.open(o)}
		o.opened[out.step.id] = mg
	}
	input := mg.inputs
	mg.inputs++
	p := port[K, V]{Push: mg.down.Push}
	if mg.down.Watermark != nil {
		p.Watermark = func(w int64) { mg.move(func(m *window.Merge) (int64, bool) { return m.Observe(input, w) }) }
	}
	if mg.down.Idle != nil {
		p.Idle = func() {
			// All inputs in one task have the same source, so they are idle together.
			if input == 0 {
				mg.down.Idle()
			}
		}
	}
	return p
}

func (mg *merging[K, V]) move(f func(*window.Merge) (int64, bool)) {
	if mg.time == nil {
		mg.time = window.NewMerge(mg.inputs)
	}
	if w, moved := f(mg.time); moved {
		mg.down.Watermark(w)
	}
}
