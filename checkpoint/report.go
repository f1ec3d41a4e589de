package checkpoint

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/log"
)

// ID names a checkpoint of a job. N is unique within an attempt only, so ids are
// compared attempt first: after a rollback the same N is used again.
type ID struct {
	Attempt int64
	N       int64
}

// Before orders ids.
func (a ID) Before(b ID) bool {
	return a.Attempt < b.Attempt || a.Attempt == b.Attempt && a.N < b.N
}

func (a ID) String() string { return fmt.Sprintf("%d/%d", a.Attempt, a.N) }

// TaskID names a task: a stage of the topology and its shard or partition.
type TaskID struct {
	Stage string
	Shard int
}

func (t TaskID) String() string { return fmt.Sprintf("%s-%d", t.Stage, t.Shard) }

func compareTasks(a, b TaskID) int {
	return cmp.Or(strings.Compare(a.Stage, b.Stage), cmp.Compare(a.Shard, b.Shard))
}

// Input is how far a task has read one source partition.
type Input struct {
	Partition log.TopicPartition
	Next      log.Position // of the first record not yet read
}

// Changelog is how far a task has written one of its changelogs.
type Changelog struct {
	Partition log.TopicPartition
	End       log.Position // after the last batch the task wrote
}

// Report is what a task says of itself at a barrier. The session keeps it; the
// caller must not change what its slices hold.
type Report struct {
	Inputs     []Input
	Changelogs []Changelog // all of the task's, also those it has not written to
	State      []byte      // the engine's own: watermarks and idleness
	Moved      bool        // anything differs from the report before; not stored

	// Durable says that something outside of the log follows the checkpoint: its entry,
	// and what that names, are to be on disk before Hooks.Complete is called, also
	// where no topic waits for the disk. Not stored.
	Durable bool
}

func compareTopicPartitions(a, b log.TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
