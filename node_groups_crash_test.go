package thalweg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// progress is what a life of the process was told.
type progress struct {
	sent      int64 // records acknowledged
	handled   int64 // records the loop has had in hand
	committed int64 // position acknowledged
}

func openOn(fs vfs.FS) (*thalweg.Node, error) {
	return thalweg.Options{
		SyncInterval: -1, CacheBytes: 1 << 20,
		Log: log.Options{FS: fs, SegmentBytes: 4 << 10, MaxBatchBytes: 4 << 10},
	}.Open("node")
}

// liveConsumer is a life of the process that sends, reads and commits after every
// second record, until something fails.
func liveConsumer(fs vfs.FS, t topic.Topic[string, int], p *progress) (err error) {
	n, err := openOn(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	producer, err := n.Producer(t)
	if err != nil {
		return err
	}
	for i := range 8 {
		if err := producer.Send(ctx, "k", i); err != nil {
			return err
		}
		p.sent++
	}
	c, err := n.ConsumerWith(t, "g", topic.ConsumerOptions{CommitInterval: -1})
	if err != nil {
		return err
	}
	for r, err := range c.Records(ctx) {
		if err != nil {
			return err
		}
		p.handled = r.Offset + 1
		if r.Offset%2 == 1 {
			if err := c.Commit(ctx); err != nil {
				return err
			}
			p.committed = r.Offset + 1
		}
		if p.handled == 7 {
			break
		}
	}
	return nil
}

// After a stop at any file operation, with pages dropped or torn, the group goes on
// between what was acknowledged and what was handled, and reads every record that was
// acknowledged from there on. Where the topic leaves syncing to the operating system
// that holds for a killed process; a power cut may take positions, but never puts one
// ahead of what was handled.
func TestConsumersStopAtEveryFileOperation(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	every := int64(2)
	if testing.Short() {
		every = 12
	}
	for name, top := range map[string]topic.Topic[string, int]{"always": numbers.Sync(log.SyncAlways), "by the operating system": numbers} {
		fs := vfs.NewMem()
		whole := &progress{}
		require.NoError(t, liveConsumer(fs, top, whole))
		require.Equal(t, &progress{sent: 8, handled: 7, committed: 6}, whole)
		total := fs.Ops()
		for stop := 1 + random.Int64N(every); stop <= total; stop += every {
			for _, powerCut := range []bool{false, true} {
				fs := vfs.NewMem()
				fs.StopAt(stop)
				p := &progress{}
				_ = liveConsumer(fs, top, p)
				if powerCut {
					fs.WriteBack(random.Uint64())
					fs = fs.Crash(random.Uint64())
				} else {
					fs = fs.Kill()
				}
				where := fmt.Sprintf("%s, seed %d, operation %d of %d, power cut %v, %+v", name, seed, stop, total, powerCut, *p)
				exact := !powerCut || top.Spec().Sync == log.SyncAlways
				require.NoError(t, goesOn(fs, top, p, exact), where)
			}
		}
	}
}

// goesOn opens what a stop left and reads on.
func goesOn(fs vfs.FS, t topic.Topic[string, int], p *progress, exact bool) (err error) {
	n, err := openOn(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.Create(context.Background(), t); err != nil {
		return err
	}
	var position int64
	if info, err := n.Group("g"); err == nil && len(info.Partitions) > 0 {
		position = info.Partitions[0].Committed.Offset
		if len(info.Members) > 0 {
			return fmt.Errorf("members of the process before: %+v", info.Members)
		}
	}
	if exact && position < p.committed || position > p.handled {
		return fmt.Errorf("the position is %d", position)
	}
	lp, err := n.Log().Partition(log.TopicPartition{Topic: t.Name()})
	if err != nil {
		return err
	}
	end := int64(lp.LastStable())
	if exact && end < p.sent {
		return fmt.Errorf("the log ends at %d, is seen to %d", lp.End().Offset, end)
	}
	c, err := n.ConsumerWith(t, "g", topic.ConsumerOptions{CommitInterval: -1})
	if err != nil {
		return err
	}
	for next := min(position, end); next < end; next++ {
		batch, err := c.Poll(context.Background())
		if err != nil {
			return err
		}
		for i, r := range batch {
			if r.Offset != next+int64(i) || int64(r.Value) != r.Offset {
				return fmt.Errorf("record %d at %d where %d was next", r.Value, r.Offset, next)
			}
		}
		next += int64(len(batch)) - 1
	}
	return nil
}
