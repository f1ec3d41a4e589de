package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// outlet writes records to the partitions of a topic.
type outlet[K, V any] struct {
	topic  string
	keys   codec.Codec[K]
	values codec.Codec[V]

	choose func(k K, partitions int) int            // nil goes by byKey
	byKey  func(encoded []byte, partitions int) int // by the encoded key
	// internal says that only the job itself reads the topic.
	internal bool

	noKey func(task *engine.Task, partitions int) int // partition of a record without a key; nil spreads them
}

// outletOf is the outlet to a topic that the program declares. Mistakes are faults of s.
func outletOf[K, V any](s *step, t topic.Topic[K, V]) outlet[K, V] {
	if err := t.Err(); err != nil {
		s.fault(err.Error())
	}
	w, err := newOutlet(t)
	if err != nil {
		s.fault(err.Error())
	}
	return w
}

func newOutlet[K, V any](t topic.Topic[K, V]) (outlet[K, V], error) {
	keys, values, err := t.Codecs(nil)
	return outlet[K, V]{topic: t.Name(), keys: keys, values: values, choose: t.Partitioner(), byKey: t.ByKey()}, err
}

// open opens the outlet for step s in a task.
func (w outlet[K, V]) open(o *opening, s *step) port[K, V] {
	task := o.task
	open := task.OpenOutput
	if w.internal {
		open = task.OpenInternalOutput
	}
	out, err := open(s.id, w.topic, o.run.partitions(w.topic))
	if err != nil {
		o.fail(err)
		return port[K, V]{}
	}
	return port[K, V]{Push: w.writer(task, s.id, out)}
}

// writer returns what encodes records and adds them to out.
func (w outlet[K, V]) writer(task *engine.Task, step int, out *engine.Output) func(m *engine.Meta, k K, v *V) {
	parts, spread := out.Partitions(), out.Spread
	if w.noKey != nil {
		p := w.noKey(task, parts)
		spread = func() int { return p }
	}
	keyBuf, valueBuf := make([]byte, 0, 64), make([]byte, 0, 256) // never nil: empty is not absent
	return func(m *engine.Meta, k K, v *V) {
		task.Running = step
		var key, value []byte
		var err error
		if !m.NoKey {
			if keyBuf, err = w.keys.Append(keyBuf[:0], k); err != nil {
				task.Fail(step, fmt.Errorf("encode key: %w", err))
				return
			}
			key = keyBuf
		}
		if !m.Deleted {
			if valueBuf, err = w.values.Append(valueBuf[:0], *v); err != nil {
				task.Fail(step, fmt.Errorf("encode value: %w", err))
				return
			}
			value = valueBuf
		}
		p := 0
		switch {
		case m.NoKey:
			p = spread()
		case w.choose != nil:
			if p = w.choose(k, parts); p < 0 || p >= parts {
				task.Fail(step, fmt.Errorf("partitioner of topic %s chose %d of %d partitions", w.topic, p, parts))
				return
			}
		default:
			p = w.byKey(key, parts)
		}
		out.Append(p, m.Time, key, value, m.Headers())
	}
}
