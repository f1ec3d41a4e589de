package topic

import (
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// Assignor says which consumer of a group is to read each partition. It is a pure
// function of a, and is called by a goroutine of the consumer, never by two at once.
// Partitions it leaves out are read by nobody.
type Assignor func(a Assignment) map[TopicPartition]string

// Assignment is what an Assignor works from.
type Assignment struct {
	// Consumers are ordered by static id, those without one first and among
	// themselves by the time they joined.
	Consumers []GroupConsumer

	// Partitions are how many each topic has that a consumer wants.
	Partitions map[string]int
}

// GroupConsumer is a consumer as an Assignor sees it.
type GroupConsumer struct {
	ID     string           // what the result names it by
	Static string           // its static id, or empty
	Topics []string         // those it wants and that exist, ascending
	Owned  []TopicPartition // what it reads now, ascending
	Target []TopicPartition // what it was to read after the last change, ascending
}

// Sticky spreads the partitions evenly and moves as few as it can: who reads a
// partition keeps it unless another who wants it has at least two fewer.
func Sticky(a Assignment) map[TopicPartition]string { return a.by(group.Sticky) }

// Range gives each consumer a run of neighbouring partitions of every topic it wants.
// Topics with as many partitions are cut alike, so that partitions of one number stay
// together.
func Range(a Assignment) map[TopicPartition]string { return a.by(group.Range) }

// by asks an assign function of package group.
func (a Assignment) by(assign group.Assign) map[TopicPartition]string {
	plan := group.Assignment{Partitions: make(map[string]int32, len(a.Partitions))}
	for t, n := range a.Partitions {
		plan.Partitions[t] = int32(n)
	}
	for i, c := range a.Consumers {
		plan.Members = append(plan.Members, group.Candidate{
			ID: group.MemberID(i + 1), Static: c.Static, Topics: c.Topics, Owned: groupPartitions(c.Owned), Target: groupPartitions(c.Target),
		})
	}
	target := map[TopicPartition]string{}
	for p, m := range assign(plan) {
		target[logPartition(p)] = a.Consumers[m-1].ID
	}
	return target
}

// assign asks a for the target of plan, and checks the answer.
func (a Assignor) assign(plan group.Assignment) (map[group.Partition]group.MemberID, error) {
	in := Assignment{Partitions: make(map[string]int, len(plan.Partitions))}
	for t, n := range plan.Partitions {
		in.Partitions[t] = int(n)
	}
	members := make(map[string]group.Candidate, len(plan.Members))
	for _, m := range plan.Members {
		id := memberName(m.ID)
		members[id] = m
		in.Consumers = append(in.Consumers, GroupConsumer{
			ID: id, Static: m.Static, Topics: slices.Clone(m.Topics), Owned: logPartitions(m.Owned), Target: logPartitions(m.Target),
		})
	}
	target := map[group.Partition]group.MemberID{}
	for tp, id := range a(in) {
		m, ok := members[id]
		p := groupPartition(tp)
		if _, wants := slices.BinarySearch(m.Topics, tp.Topic); !ok || !wants || p.Number < 0 || p.Number >= plan.Partitions[tp.Topic] {
			return nil, fmt.Errorf("topic: the Assignor gave %s to consumer %q: there is no such partition, no such consumer, or it does not want the topic", tp, id)
		}
		target[p] = m.ID
	}
	return target, nil
}

// memberName is how a member is shown.
func memberName(id group.MemberID) string { return fmt.Sprintf("%016x", uint64(id)) }

func groupPartition(tp TopicPartition) group.Partition {
	return group.Partition{Topic: tp.Topic, Number: int32(tp.Partition)}
}

func logPartition(p group.Partition) TopicPartition {
	return TopicPartition{Topic: p.Topic, Partition: log.PartitionID(p.Number)}
}

func groupPartitions(tps []TopicPartition) []group.Partition {
	ps := make([]group.Partition, len(tps))
	for i, tp := range tps {
		ps[i] = groupPartition(tp)
	}
	return ps
}

func logPartitions(ps []group.Partition) []TopicPartition {
	tps := make([]TopicPartition, len(ps))
	for i, p := range ps {
		tps[i] = logPartition(p)
	}
	return tps
}
