package thalweg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	Deleted  log.Deleted // since the node was opened

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
		info.Partitions = append(info.Partitions, describe(p))
	}
	return info, nil
}

func describe(p *log.Partition) PartitionInfo {
	info := PartitionInfo{
		Start:         int64(p.Start()),
		LastStable:    int64(p.LastStable()),
		HighWatermark: int64(p.HighWatermark()),
		End:           int64(p.End().Offset),
		Deleted:       p.Deleted(),
		Failed:        p.Failed(),
	}
	info.Bytes, info.Segments = p.Size()
	if open := p.OpenTransactions(); len(open) > 0 {
		info.OldestTransaction = slices.MinFunc(open, func(a, b log.OpenTransaction) int { return cmp.Compare(a.First, b.First) }).Since
	}
	return info
}
