package stream

import (
	"fmt"
	"reflect"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// source is a topic the topology reads.
type source struct {
	topic     string
	spec      topic.Spec
	committed bool
	replay    bool                                                      // of dead letters: from the beginning to what is there when the job starts
	feed      func(r *run, p *topic.LogPartition) (*engine.Feed, error) // what writes it, of From; else nil
	open      func(o *opening, at sourceStart)
	decode    any // a func(key, value []byte) (K, V, error)

	byHash bool // producers choose the partition by the hash of the encoded key
	key    any  // the codec they encode it with
}

// startAt is where a job begins to read that runs for the first time.
func (s *source) startAt(app *Topology) topic.Position {
	if s.replay || s.feed != nil {
		return topic.Start()
	}
	return app.startAt
}

// stopAt is where a run ends; nil is nowhere.
func (s *source) stopAt(app *Topology) *topic.Position {
	if s.replay {
		return new(topic.End())
	}
	if s.feed != nil { // it ends when what it reads does
		return nil
	}
	return app.stopAt
}

// spread tells whether the topic is spread over its partitions by keys that are encoded
// with the codec key.
func (s *source) spread(key any) bool { return s.byHash && reflect.DeepEqual(s.key, key) }

// isolation is what readers of the topic may see.
func (s *source) isolation() topic.Isolation {
	if s.committed {
		return topic.ReadCommitted
	}
	return topic.ReadUncommitted
}

// sourceStart is what a source reads in one task.
type sourceStart struct {
	partition *topic.LogPartition
	reader    *topic.LogReader
	start     topic.LogPosition
	stop      topic.LogOffset
}

// Stream reads a topic, from where StartAt says when the job runs for the first
// time and from where it was later. Of a transactional topic it reads what is
// committed, unless the topic says Uncommitted. The job creates the topic where it does
// not exist.
func (app *Topology) Stream[K, V any](t topic.Topic[K, V]) Stream[K, V] {
	n := &node[K, V]{step: app.declare("stream")}
	s := n.step
	if spec := t.Spec(); spec.Delayed || spec.TimeToLive > 0 {
		s.fault(fmt.Sprintf("topic %q is declared Delayed or with a TimeToLive, and which records a job saw would depend on when it reads: "+
			"have a queue or a consumer send what is due to another topic, and read that", t.Name()))
	}
	s.source = &source{topic: t.Name(), spec: t.Spec(), committed: !t.IsUncommitted()}
	s.clock = &clockSettings{disorder: -1}
	if err := t.Err(); err != nil {
		s.fault(err.Error())
	}
	key, value, err := t.Codecs(nil)
	if err != nil {
		s.fault(err.Error())
	}
	guards[[]byte, []byte](s)
	s.source.decode = decodeBoth(key, value)
	s.source.byHash, s.source.key = t.Partitioner() == nil, key
	s.source.open = func(o *opening, at sourceStart) {
		clock, err := s.clock.open(app)
		if err != nil {
			o.fail(err)
			return
		}
		options := engine.SourceOptions[K, V]{Guard: guardSource(openGuard[[]byte, []byte](o, s)),

			Partition: at.partition, Reader: at.reader, Start: at.start, Stop: at.stop,
			Value: value, EventTime: t.EventTimeFunc(), Clock: clock, Says: saidBy[V](s.clock), IdleAfter: s.clock.idleAfter(app),
			Future: s.clock.guard(), Align: s.clock.alignment(), SkipDeleted: app.skip,
			Step: s.id, Name: s.clock.name,
		}
		if s.keyIsRead() {
			options.Key = key
		}
		engine.OpenSource(o.task, options, n.open(o))
	}
	return Stream[K, V]{n}
}

// keyIsRead tells whether a step behind s reads the key that s gives; where none
// does it is not decoded.
func (s *step) keyIsRead() bool {
	for _, out := range s.outputs {
		if out.needsKey || out.policy().letters != nil || !out.changeKey && out.keyIsRead() {
			return true
		}
	}
	return false
}

// headersAreRead tells whether a step behind s reads the headers of the records it gives.
func (s *step) headersAreRead() bool {
	for _, out := range s.outputs {
		if out.needsHeaders || out.policy().letters != nil || !out.dropsHeaders && out.headersAreRead() {
			return true
		}
	}
	return false
}

// sink is a topic the topology writes.
type sink struct {
	topic string
	spec  topic.Spec
}

// to writes what n gives to a topic.
func to[K, V any](n *node[K, V], t topic.Topic[K, V]) *step {
	s := n.step.app.declare("to", n.step)
	s.needsKey, s.needsHeaders = true, true
	s.sink = &sink{topic: t.Name(), spec: t.Spec()}
	out := outletOf(s, t)
	connect(n, s, func(o *opening) port[K, V] { return out.open(o, s) })
	return s
}
