package log

import (
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// So few partitions are taken one after the other, in order.
	fewPartitions = 63

	// atOnce is how many partitions are opened, or closed, at a time where there are
	// more: it is the disk that is waited for, and it takes no longer for several.
	atOnce = 32
)

// inParallel calls f for each partition and returns the first error; after one no more
// are begun.
func inParallel(all []*Partition, f func(*Partition) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	if len(all) <= fewPartitions {
		group.SetLimit(1)
	}
	var failed atomic.Bool
	for _, p := range all {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			err := f(p)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}
