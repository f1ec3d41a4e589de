package thalweg

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/log"
)

// TopicInfo describes a topic at a moment.
type TopicInfo struct {
	Name       string
	Spec       log.TopicSpec // its settings now
	Partitions []PartitionInfo
}

// PartitionInfo describes a partition at a moment. Its offsets were read one after the
// other while it was in use.
type PartitionInfo struct {
	Start         int64 // first offset still kept
	LastStable    int64 // first one that readers of committed records do not see yet
	HighWatermark int64 // first one that no reader sees yet
	End           int64 // the next one to be written

	Bytes    int64 // of the records that are kept, as stored
	Segments int
	Oldest   time.Time // of the first record, by its own time; zero without one, and where only the object store has it

	// What was dropped since the node was opened: by retention and DeleteRecords, as
	// transactions that were aborted, and as records that readers and consumers passed
	// over since they had expired, each of them once for each reader.
	Deleted log.Deleted
	Aborted int64
	Expired int64

	// Compacted is what compactions have done since the node was opened.
	Compacted log.CompactionStats

	// Remote is what the object store has; Remote.LocalStart is the first offset that
	// is in the node's directory too.
	Remote log.RemoteStats

	// OldestTransaction is when the oldest open transaction began, zero without one:
	// LastStable stays before it until it ends.
	OldestTransaction time.Time

	// Failed is the failure that took the partition offline, nil without one.
	Failed error
}

// Topics returns the names of the topics, in order, without those that the node keeps
// for itself.
func (n *Node) Topics() ([]string, error) {
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var names []string
	for name := range n.plane.Log().Topics() {
		if !strings.HasPrefix(name, "__") {
			names = append(names, name)
		}
	}
	return names, nil
}

// Describe returns the settings and the state of a topic, by name: also of one that the
// program does not declare. A topic that does not exist is log.ErrUnknownTopic.
func (n *Node) Describe(ctx context.Context, topic string) (TopicInfo, error) {
	leave, err := n.enter()
	if err != nil {
		return TopicInfo{}, err
	}
	defer leave()
	spec, ok := n.plane.Log().Spec(topic)
	if !ok {
		return TopicInfo{}, fmt.Errorf("thalweg: describe topic %q: %w", topic, log.ErrUnknownTopic)
	}
	info := TopicInfo{Name: topic, Spec: spec}
	for i := range spec.Partitions {
		if err := ctx.Err(); err != nil {
			return TopicInfo{}, err
		}
		p, err := n.plane.Log().Partition(log.TopicPartition{Topic: topic, Partition: log.PartitionID(i)})
		if err != nil {
			return TopicInfo{}, fmt.Errorf("thalweg: describe topic %q: %w", topic, err)
		}
		part := describe(p)
		part.Expired = n.expired.of(p.Name())
		info.Partitions = append(info.Partitions, part)
	}
	return info, nil
}

func describe(p *log.Partition) PartitionInfo {
	info := PartitionInfo{
		Start:         int64(p.Start()),
		LastStable:    int64(p.LastStable()),
		HighWatermark: int64(p.HighWatermark()),
		End:           int64(p.End().Offset),
		Oldest:        p.Oldest(),
		Deleted:       p.Deleted(),
		Aborted:       p.Aborted(),
		Compacted:     p.Compacted(),
		Remote:        p.Remote(),
		Failed:        p.Failed(),
	}
	info.Bytes, info.Segments = p.Size()
	if open := p.OpenTransactions(); len(open) > 0 {
		info.OldestTransaction = slices.MinFunc(open, func(a, b log.OpenTransaction) int { return cmp.Compare(a.First, b.First) }).Since
	}
	return info
}

// tally counts by partition.
type tally struct {
	mu     sync.Mutex // a leaf
	counts map[log.TopicPartition]int64
}

func (c *tally) add(tp log.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[log.TopicPartition]int64{}
	}
	c.counts[tp]++
}

func (c *tally) of(tp log.TopicPartition) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[tp]
}

func (c *tally) forget(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.counts, func(tp log.TopicPartition, _ int64) bool { return tp.Topic == topic })
}
