package topic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/group"
)

// GroupInfo describes a consumer group.
type GroupInfo struct {
	Name       string
	State      GroupState
	Epoch      int64 // grows with every change of members, subscriptions or target
	Members    []GroupMember
	Partitions []GroupPartition // those with an owner or a position, by topic and number
}

// GroupState is how far a group is with its last change.
type GroupState string

const (
	GroupEmpty       GroupState = "empty"       // no members; its positions are kept
	GroupAssigning   GroupState = "assigning"   // it is not yet decided who is to read what
	GroupReconciling GroupState = "reconciling" // it is, and partitions are on their way
	GroupStable      GroupState = "stable"      // everybody reads what was decided
)

// GroupMember is a member of a group.
type GroupMember struct {
	ID      string
	Static  string           // its static id, or empty
	Topics  []string         // those it subscribed to by name
	Pattern string           // and by pattern
	Owned   []TopicPartition // what it reads, ascending
	Away    time.Time        // since when a static member is gone; zero while it is there
}

// GroupPartition is a partition that a group reads or has read.
type GroupPartition struct {
	TopicPartition
	Member    string    // the id of the member that reads it, or empty
	Committed Committed // where the group has got to, if Known
	Known     bool
	End       int64 // the offset behind the last record committed; 0 where the topic is gone
	Lag       int64 // End less the position, or all records kept where there is none
}

// DescribeGroup returns a group of n, or ErrUnknownGroup.
func DescribeGroup(n GroupNode, name string) (GroupInfo, error) {
	var g *group.Group
	n.Group(name, func(now *group.Group) {
		if now != nil {
			g = now.Clone()
		}
	})
	if g == nil {
		return GroupInfo{}, fmt.Errorf("%w: %q", ErrUnknownGroup, name)
	}
	info := GroupInfo{Name: name, State: GroupState(g.Phase().String()), Epoch: g.Epoch}
	for _, id := range g.Ordered() {
		m := g.Members[id]
		member := GroupMember{
			ID: memberName(id), Static: m.Static, Topics: slices.Clone(m.Subscription.Topics), Pattern: m.Subscription.Pattern,
			Owned: logPartitions(g.Owned(id)),
		}
		if m.Away != 0 {
			member.Away = time.UnixMilli(m.Away).UTC()
		}
		info.Members = append(info.Members, member)
	}
	known := map[group.Partition]bool{}
	for p := range g.Owners {
		known[p] = true
	}
	for p := range g.Positions {
		if _, ok := g.Position(p); ok {
			known[p] = true
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(known), group.Partition.Compare) {
		part := GroupPartition{TopicPartition: logPartition(p)}
		if o, ok := g.Owners[p]; ok {
			part.Member = memberName(o.Member)
		}
		at, ok := g.Position(p)
		part.Committed, part.Known = committedOf(p, at), ok
		if lp, err := n.Partition(part.TopicPartition); err == nil {
			from := int64(lp.Start())
			if ok {
				from = at.Offset
			}
			part.End = int64(lp.LastStable())
			part.Lag = max(part.End-from, 0)
		}
		info.Partitions = append(info.Partitions, part)
	}
	return info, nil
}

// ResetGroup makes a group without consumers go on at to in all partitions of topics,
// or, where none is named, in all partitions it has positions in. The group need not
// exist before. One with consumers is ErrGroupInUse.
func ResetGroup(ctx context.Context, n GroupNode, name string, to Position, topics ...string) error {
	if err := checkGroup(name); err != nil {
		return err
	}
	partitions, err := partitionsOfGroup(n, name, topics)
	if err != nil {
		return err
	}
	step := group.Commit{Group: name}
	for _, p := range partitions {
		lp, err := n.Partition(logPartition(p))
		if err != nil {
			return fmt.Errorf("topic: reset group %q: %w", name, err)
		}
		off, err := to.Resolve(lp)
		if err != nil {
			return fmt.Errorf("topic: reset group %q: %w", name, err)
		}
		cl := claim{partition: lp}
		step.Positions = append(step.Positions, group.Committed{Grant: group.Grant{Partition: p}, Position: cl.at(off, "")})
	}
	if err := n.ProposeGroup(ctx, step); err != nil {
		return fmt.Errorf("topic: reset group %q: %w", name, err)
	}
	return nil
}

// partitionsOfGroup returns the partitions of topics, or else those the group has
// positions in, ascending.
func partitionsOfGroup(n GroupNode, name string, topics []string) ([]group.Partition, error) {
	var partitions []group.Partition
	if len(topics) > 0 {
		counts := map[string]int{}
		for t, spec := range n.Topics() {
			counts[t] = spec.Partitions
		}
		for _, t := range slices.Compact(slices.Sorted(slices.Values(topics))) {
			if counts[t] == 0 {
				return nil, fmt.Errorf("topic: reset group %q: there is no topic %q", name, t)
			}
			for i := range counts[t] {
				partitions = append(partitions, group.Partition{Topic: t, Number: int32(i)})
			}
		}
		return partitions, nil
	}
	known := false
	n.Group(name, func(g *group.Group) {
		if known = g != nil; known {
			partitions = slices.SortedFunc(maps.Keys(g.Positions), group.Partition.Compare)
			partitions = slices.DeleteFunc(partitions, func(p group.Partition) bool {
				_, ok := g.Position(p)
				return !ok
			})
		}
	})
	if !known {
		return nil, fmt.Errorf("topic: reset group %q: %w: name its topics to make it", name, ErrUnknownGroup)
	}
	return partitions, nil
}

// DeleteGroup forgets a group with its positions. One with consumers is ErrGroupInUse.
func DeleteGroup(ctx context.Context, n GroupNode, name string) error {
	if err := n.ProposeGroup(ctx, group.Delete{Group: name}); err != nil {
		return fmt.Errorf("topic: delete group %q: %w", name, err)
	}
	return nil
}
