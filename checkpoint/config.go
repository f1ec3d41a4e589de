package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/log"
)

const (
	// defaultInterval is the time between checkpoints of a job that says nothing.
	defaultInterval = 100 * time.Millisecond
	// minInterval is the shortest interval accepted: a checkpoint with nothing
	// to wait for costs some ten microseconds, so that one every millisecond
	// is still a small part of a core.
	minInterval = time.Millisecond
)

// Config says how a job checkpoints. The zero value means Every(100 ms), exactly
// once. Configs are values: the methods return changed copies.
type Config struct {
	interval    time.Duration // zero means defaultInterval
	atLeastOnce bool
	compression log.Compression
	err         error
}

// Every sets the time between two checkpoints, at least 1 ms. A shorter one is
// kept as a fault that Err returns, so that a topology reports it with all others.
func Every(d time.Duration) Config {
	if d < minInterval {
		return Config{err: fmt.Errorf("checkpoint: interval %v is below the minimum of %v", d, minInterval)}
	}
	return Config{interval: d}
}

// AtLeastOnce returns c with output written outside transactions: readers see it
// at once, and after a failure the records since the last checkpoint give their
// results a second time. State is still exact.
func (c Config) AtLeastOnce() Config {
	c.atLeastOnce = true
	return c
}

// IsAtLeastOnce tells whether AtLeastOnce was asked for.
func (c Config) IsAtLeastOnce() bool { return c.atLeastOnce }

// Compress returns c with the changelogs of the job's state compressed. They are written
// at every checkpoint and read when the job starts, so this trades time at both for
// space. Without it they are not compressed. A changelog that exists follows from the
// next start on; what is in it stays as it is until it is compacted.
func (c Config) Compress(by log.Compression) Config {
	c.compression = by
	if by == log.NoCompression {
		c.compression = 0
	}
	if err := by.CheckLevel(0); err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("checkpoint: compress changelogs: %w", err))
	}
	return c
}

// Compression is how changelogs are compressed.
func (c Config) Compression() log.Compression { return c.compression }

// Interval is the time between two checkpoints.
func (c Config) Interval() time.Duration {
	if c.interval == 0 {
		return defaultInterval
	}
	return c.interval
}

// Err is the fault of the declaration, or nil.
func (c Config) Err() error { return c.err }
