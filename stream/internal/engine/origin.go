package engine

import (
	"sync"

	"github.com/thalweg/thalweg/topic"
)

// Origin is a source partition, as records carry it: its number among those of the
// job, from 1. Zero is no partition.
type Origin int32

// origins numbers the source partitions of a job.
type origins struct {
	mu      sync.Mutex // guards the fields below; a leaf
	numbers map[topic.TopicPartition]Origin
	names   []topic.TopicPartition
}

func (o *origins) number(tp topic.TopicPartition) Origin {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, ok := o.numbers[tp]; ok {
		return n
	}
	if o.numbers == nil {
		o.numbers = make(map[topic.TopicPartition]Origin)
	}
	o.names = append(o.names, tp)
	n := Origin(len(o.names))
	o.numbers[tp] = n
	return n
}

func (o *origins) name(n Origin) (tp topic.TopicPartition, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n < 1 || int(n) > len(o.names) {
		return topic.TopicPartition{}, false
	}
	return o.names[n-1], true
}

// OriginOf is the number of a partition, for Meta.Origin.
func (t *Task) OriginOf(tp topic.TopicPartition) Origin { return t.job.origins.number(tp) }

// Origin is the partition that a record came from; ok is false where it is the result
// of several, or of time.
func (t *Task) Origin(m *Meta) (tp topic.TopicPartition, ok bool) {
	return t.job.origins.name(m.Origin)
}
