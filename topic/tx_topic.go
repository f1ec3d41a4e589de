package topic

import (
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/log"
)

// txTopic is a topic that transactions write to.
type txTopic[K, V any] struct {
	encoder[K, V]
	settings *settings
	growth   growth
	layout   atomic.Pointer[txLayout]
	turn     atomic.Uint32 // of the partition for records without key
}

// txLayout is the partitions of a txTopic. It is never changed: one with more of them
// takes its place.
type txLayout struct {
	partitions []*log.Partition
	changed    <-chan struct{} // closed when there may be more
}

// now returns the partitions that the topic has now. One that was deleted is made again.
func (t *txTopic[K, V]) now() ([]*log.Partition, error) {
	if l := t.layout.Load(); !isClosed(l.changed) {
		return l.partitions, nil
	}
	partitions, changed := t.growth.next(0)
	if len(partitions) == 0 {
		var err error
		if partitions, err = open(t.growth.node, t.settings); err != nil {
			return nil, fmt.Errorf("topic: open %q: %w", t.topic, err)
		}
	}
	// One stored over a later look has a closed channel, so that there is another.
	t.layout.Store(&txLayout{partitions, changed})
	return partitions, nil
}

// maxTxTopics bounds the topics a TxProducer remembers: a program that declares them
// anew for each transaction must not fill the memory.
const maxTxTopics = 1024

// txTopicOf opens t, unless p has it open.
func txTopicOf[K, V any](p *TxProducer, t Topic[K, V]) (*txTopic[K, V], error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	known, ok := p.topics[t.s.declared].(*txTopic[K, V])
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	keys, values, err := t.Codecs(nil)
	if err != nil {
		return nil, err
	}
	changed := p.node.TopicsChanged() // before the look, so that nothing is missed
	partitions, err := open(p.node, t.s)
	if err != nil {
		return nil, fmt.Errorf("topic: open %q: %w", t.Name(), err)
	}
	opened := &txTopic[K, V]{encoder: newEncoder(t, keys, values, p.now), settings: t.s, growth: growth{p.node, t.Name()}}
	opened.layout.Store(&txLayout{partitions: partitions, changed: changed})
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) >= maxTxTopics {
		clear(p.topics)
	}
	p.topics[t.s.declared] = opened
	return opened, nil
}

// stickyRecords is how many records without key go to one partition before the next.
const stickyRecords = 256

// place returns which of partitions e goes to.
func (t *txTopic[K, V]) place(e *entry, partitions []*log.Partition) *log.Partition {
	if e.partition == anyPartition {
		e.partition = int(t.turn.Add(1)/stickyRecords) % len(partitions)
	}
	return partitions[e.partition]
}
