package topic

import (
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/log"
)

// txTopic is a topic that transactions write to.
type txTopic[K, V any] struct {
	encoder[K, V]
	partitions []*log.Partition
	turn       atomic.Uint32 // of the partition for records without key
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
	known, ok := p.topics[t.declared].(*txTopic[K, V])
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	keys, values, err := t.Codecs(nil)
	if err != nil {
		return nil, err
	}
	partitions, err := open(p.node, t)
	if err != nil {
		return nil, fmt.Errorf("topic: open %q: %w", t.name, err)
	}
	opened := &txTopic[K, V]{encoder: newEncoder(t, keys, values, len(partitions), p.now), partitions: partitions}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) >= maxTxTopics {
		clear(p.topics)
	}
	p.topics[t.declared] = opened
	return opened, nil
}

// stickyRecords is how many records without key go to one partition before the next.
const stickyRecords = 256

// place returns the partition of e.
func (t *txTopic[K, V]) place(e *entry) *log.Partition {
	if e.partition == anyPartition {
		e.partition = int(t.turn.Add(1)/stickyRecords) % len(t.partitions)
	}
	return t.partitions[e.partition]
}
