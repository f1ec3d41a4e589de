package log

import "time"

// copies chooses how large batches go into a file that is used again. A copy into the
// map is twice as fast as a call where the page may be written to, and ten times
// slower where the system has cleaned it since: the more often pages are written
// between two cleanings, the better are copies. How often that is depends on the
// topic, on its disk and on everything else that runs there, so it is measured.
//
// The zero value begins with copies.
type copies struct {
	saved  time.Duration // by copies in comparison with calls, within ±copiesBudget
	until  time.Time     // calls until then
	paused time.Duration // how long the last such pause was
}

const (
	copiesBudget     = 4 * time.Second // copies may lose as much before there is a pause
	firstCopiesPause = 30 * time.Second
	mostCopiesPause  = 16 * time.Minute
	callBytesPerNs   = 7 // what a call writes to pages in memory
)

// wanted tells whether to copy.
func (c *copies) wanted(now time.Time) bool { return !now.Before(c.until) }

// took notes that a copy of n bytes took d.
func (c *copies) took(n int64, d time.Duration, now time.Time) {
	c.saved += time.Duration(n/callBytesPerNs) - d
	switch {
	case c.saved >= copiesBudget:
		c.saved, c.paused = copiesBudget, 0
	case c.saved <= -copiesBudget:
		c.paused = max(firstCopiesPause, min(2*c.paused, mostCopiesPause))
		c.saved, c.until = 0, now.Add(c.paused)
	}
}
