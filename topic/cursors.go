package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/thalweg/thalweg/log"
)

// cursors reads several partitions as one sequence of batches: they take turns,
// so none starves while another is busy. For one goroutine.
type cursors struct {
	all    []cursor
	follow bool
	turn   int // whose batch was returned last

	iso     log.Isolation
	timed   timing
	growth  growth
	changed <-chan struct{} // closed when there may be more partitions; nil where they do not matter
}

// cursor is a place in one partition.
type cursor struct {
	partition *log.Partition
	reader    *log.Reader
	end       log.Offset // nothing at or after it is returned
	floating  bool       // nothing was read yet, from the start: retention may move it on
	done      bool       // has nothing more below end
	holdback  holdback
}

// newCursors places a cursor in every partition. Unless it is to follow them,
// their ends are those at the call.
func newCursors(partitions []*log.Partition, from Position, iso log.Isolation, follow bool, timed timing) (*cursors, error) {
	c := &cursors{all: make([]cursor, len(partitions)), follow: follow, turn: -1, iso: iso, timed: timed}
	// All ends come before anything else: the moment they stand for should be short.
	for i, p := range partitions {
		c.all[i] = cursor{partition: p, end: math.MaxInt64, floating: from.kind == positionStart, holdback: holdback{timing: timed}}
		if !follow {
			c.all[i].end = visibleEnd(p, iso)
		}
	}
	for i, p := range partitions {
		off, err := from.ResolveFor(p, iso)
		if err != nil {
			c.close()
			return nil, err
		}
		c.all[i].reader = p.Reader(off, iso)
	}
	return c, nil
}

// grow makes c read partitions that are added to the topic from now on, too.
func (c *cursors) grow(g growth) {
	c.growth = g
	c.look()
}

// look adds the partitions that were added to the topic, from their beginning: nothing
// of them was there when reading began.
func (c *cursors) look() {
	last := c.all[len(c.all)-1].partition.Name().Partition // a directory that was copied may lack some before it
	more, changed := c.growth.next(int(last) + 1)
	for _, p := range more {
		added := cursor{partition: p, end: math.MaxInt64, floating: true, holdback: holdback{timing: c.timed}}
		added.reader = p.Reader(p.Start(), c.iso)
		c.all = append(c.all, added)
	}
	c.changed = changed
}

// next returns the next batch and its partition's number, or io.EOF when there
// is none and none is waited for. The batch is valid until the next call.
func (c *cursors) next(ctx context.Context) (*log.Batch, int, error) {
	for idle := 0; ; idle++ {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if isClosed(c.changed) {
			c.look()
			idle = 0
		}
		if idle == len(c.all) {
			if !c.follow {
				return nil, 0, io.EOF
			}
			if err := c.wait(ctx); err != nil {
				return nil, 0, err
			}
			idle = 0
		}
		c.turn = (c.turn + 1) % len(c.all)
		b, err := c.all[c.turn].next(c.follow)
		if err != io.EOF {
			return b, int(c.all[c.turn].partition.Name().Partition), err
		}
	}
}

// wait returns once a partition may have something new, or can never have.
func (c *cursors) wait(ctx context.Context) error {
	if len(c.all) == 1 && c.changed == nil {
		return c.all[0].wait(ctx)
	}
	first, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var waiting sync.WaitGroup
	for i := range c.all {
		waiting.Go(func() { cancel(cmp.Or(c.all[i].wait(first), errAdvanced)) })
	}
	if c.changed != nil {
		waiting.Go(func() {
			select {
			case <-c.changed:
				cancel(errAdvanced)
			case <-first.Done():
			}
		})
	}
	waiting.Wait()
	if err := context.Cause(first); err != errAdvanced && ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// errAdvanced ends the wait for the other partitions.
var errAdvanced = errors.New("topic: a partition has advanced")

// end is the end of the partition whose batch next returned last.
func (c *cursors) end() log.Offset { return c.all[c.turn].end }

func (c *cursors) close() {
	for i := range c.all {
		if r := c.all[i].reader; r != nil {
			r.Close()
		}
	}
}

// wait returns once next may have something new. It never has once the
// partition is closed or offline, which is an error.
func (c *cursor) wait(ctx context.Context) error {
	if c.holdback.until != 0 {
		return c.holdback.wait(ctx)
	}
	err := c.reader.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("topic: read %s: %w", c.partition.Name(), err)
}

// next returns the partition's next batch, or io.EOF.
func (c *cursor) next(follow bool) (*log.Batch, error) {
	for !c.done {
		if c.holdback.holds(c.reader) {
			c.done = !follow
			return nil, io.EOF
		}
		b, err := c.reader.Next()
		switch {
		case err == nil && b.Base < c.end:
			c.floating = false
			if b, err = c.holdback.take(c.reader, b); err != nil {
				break
			}
			if b == nil {
				continue // nothing of it is due
			}
			return b, nil
		case err == nil || err == io.EOF:
			c.done = !follow
			return nil, io.EOF
		case errors.Is(err, log.ErrOffsetOutOfRange):
			if c.floating {
				c.reader.Seek(c.partition.Start())
				continue
			}
			if e := checkOffset(c.partition, c.reader.Offset()); e != nil {
				return nil, e
			}
		}
		return nil, fmt.Errorf("topic: read %s: %w", c.partition.Name(), err)
	}
	return nil, io.EOF
}
