package main

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// progress counts the rows of one step, says every now and then how far it is,
// and holds it back to a rate so that there is something to see and to kill.
type progress struct {
	out     io.Writer
	did     string // as in "counted 12,000 rows"
	total   int
	perRow  time.Duration // zero for as fast as it goes
	began   time.Time
	rows    atomic.Int64
	stopped chan struct{}
	wg      sync.WaitGroup
}

func startProgress(out io.Writer, did string, total, rate int) *progress {
	p := &progress{out: out, did: did, total: total, began: time.Now(), stopped: make(chan struct{})}
	if rate > 0 {
		p.perRow = time.Second / time.Duration(rate)
	}
	p.wg.Go(p.report)
	return p
}

// row counts one row. It may be called concurrently.
func (p *progress) row() {
	n := p.rows.Add(1)
	if p.perRow == 0 {
		return
	}
	if ahead := time.Duration(n)*p.perRow - time.Since(p.began); ahead > time.Millisecond {
		time.Sleep(ahead)
	}
}

func (p *progress) report() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(p.out, "%s %s rows\n", p.did, thousands(p.rows.Load()))
		case <-p.stopped:
			return
		}
	}
}

// stop ends the reports with a last one.
func (p *progress) stop() {
	close(p.stopped)
	p.wg.Wait()
	n, took := p.rows.Load(), time.Since(p.began).Round(time.Millisecond)
	switch {
	case n == 0:
		fmt.Fprintf(p.out, "nothing to do: all %s rows are already %s\n", thousands(int64(p.total)), p.did)
	case n < int64(p.total):
		fmt.Fprintf(p.out, "%s %s rows in %v; an earlier run had done the rest\n", p.did, thousands(n), took)
	default:
		fmt.Fprintf(p.out, "%s all %s rows in %v\n", p.did, thousands(n), took)
	}
}

// thousands writes 56456 as 56,456.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
