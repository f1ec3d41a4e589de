package topic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/thalweg/thalweg/log"
)

// cursors reads several partitions as one sequence of batches: they take turns,
// so none starves while another is busy. For one goroutine.
type cursors struct {
	all      []cursor
	follow   bool
	turn     int           // whose batch was returned last
	advanced chan struct{} // one token: a partition may have something new
	cancels  []func()      // of the registrations that fill advanced
}

// cursor is a place in one partition.
type cursor struct {
	partition *log.Partition
	reader    *log.Reader
	end       log.Offset // nothing at or after it is returned
	floating  bool       // nothing was read yet, from the start: retention may move it on
	done      bool       // has nothing more below end
}

// newCursors places a cursor in every partition. Unless it is to follow them,
// their ends are those at the call.
func newCursors(partitions []*log.Partition, from Position, iso log.Isolation, follow bool) (*cursors, error) {
	c := &cursors{all: make([]cursor, len(partitions)), follow: follow, turn: -1, advanced: make(chan struct{}, 1)}
	// All ends come before anything else: the moment they stand for should be short.
	for i, p := range partitions {
		c.all[i] = cursor{partition: p, end: math.MaxInt64, floating: from.kind == positionStart}
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
		if follow {
			c.cancels = append(c.cancels, p.OnAdvance(c.advance))
		}
	}
	return c, nil
}

// advance is called when a partition has grown.
func (c *cursors) advance() {
	select {
	case c.advanced <- struct{}{}:
	default:
	}
}

// next returns the next batch and its partition's number, or io.EOF when there
// is none and none is waited for. The batch is valid until the next call.
func (c *cursors) next(ctx context.Context) (*log.Batch, int, error) {
	for idle := 0; ; idle++ {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if idle == len(c.all) {
			if !c.follow {
				return nil, 0, io.EOF
			}
			select {
			case <-c.advanced: // registered before the partitions were found empty
			case <-ctx.Done():
				return nil, 0, ctx.Err()
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

// end is the end of the partition whose batch next returned last.
func (c *cursors) end() log.Offset { return c.all[c.turn].end }

func (c *cursors) close() {
	for _, cancel := range c.cancels {
		cancel()
	}
	for i := range c.all {
		if r := c.all[i].reader; r != nil {
			r.Close()
		}
	}
}

// next returns the partition's next batch, or io.EOF.
func (c *cursor) next(follow bool) (*log.Batch, error) {
	for !c.done {
		b, err := c.reader.Next()
		switch {
		case err == nil && b.Base < c.end:
			c.floating = false
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
