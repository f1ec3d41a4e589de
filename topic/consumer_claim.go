package topic

import (
	"sync/atomic"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/log"
)

// claim is a partition that a consumer owns.
//
//	committed <= done      unless the program went back
//	done      <= handed    while records are in hand
type claim struct {
	name      TopicPartition
	grant     group.Grant
	partition *log.Partition
	isolation log.Isolation
	reader    *log.Reader // of the goroutine that reads
	holdback  holdback    // likewise
	cancel    func()      // ends the partition's signals

	// done is the offset below which the program has finished all. The goroutine
	// that reads writes it.
	done atomic.Int64

	// Guarded by consumer.mu.
	committed int64      // the group's position; -1 for none
	paused    bool       // nothing is read
	deleted   bool       // its topic is gone
	seek      log.Offset // where to go on, or noSeek
	err       error      // why nothing can be read until the program seeks
}

const noSeek log.Offset = -1

// positionLocked is the offset to commit: consumer.mu is held.
func (cl *claim) positionLocked() log.Offset {
	if cl.seek != noSeek {
		return cl.seek
	}
	return log.Offset(cl.done.Load())
}

// at returns an offset of the claim as a position of its group.
func (cl *claim) at(off log.Offset, metadata string) group.Position {
	p := group.Position{Offset: int64(off), LeaderEpoch: unknownEpoch, Metadata: metadata}
	if pos, err := cl.partition.PositionAt(off); err == nil {
		p.LeaderEpoch = int32(pos.Epoch)
	}
	return p
}
