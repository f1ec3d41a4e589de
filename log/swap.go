package log

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// How a segment takes the place of others, by compaction of ours or of a Kafka broker.
// N.log.cleaned is being written and counts for nothing. N.log.swap is whole, on disk,
// and takes the place of all segments from N to its own end. N.log.deleted is on its
// way out.
//
//	.cleaned ──▶ .swap ──▶ (segments it replaces removed) ──▶ .log
//
// Of a broker, a segment may be replaced by several, of which none counts while one
// with a lower offset is not complete.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// swap is a segment that takes the place of those in [base, next).
type swap struct{ base, next Offset }

type swaps []swap

// cover tells whether a segment at base is replaced.
func (all swaps) cover(base Offset) bool {
	return len(all) > 0 && base >= all[0].base && base < max(all[len(all)-1].next, all[len(all)-1].base+1)
}

// findSwaps returns the segments that were to replace others when the process before
// ended, by base offset.
func (o *opening) findSwaps() (all swaps, err error) {
	names, err := o.options.FS.List(o.dir)
	if err != nil {
		return nil, err
	}
	incomplete := maxOffset
	for _, name := range names {
		if base, ok := parseOffsetName(strings.TrimSuffix(name, cleanedSuffix), logSuffix); ok && strings.HasSuffix(name, cleanedSuffix) {
			incomplete = min(incomplete, base)
		}
	}
	for _, name := range names {
		base, ok := parseOffsetName(strings.TrimSuffix(name, swapSuffix), logSuffix)
		if !ok || !strings.HasSuffix(name, swapSuffix) || base >= incomplete {
			continue
		}
		s, err := o.findToRead(base, logSuffix+swapSuffix)
		if err == nil {
			err = s.pin()
		}
		if err != nil {
			return nil, err
		}
		found := s.scan(s.allocated, scanOptions{gapsBelow: maxOffset})
		s.unpin()
		if err := errors.Join(found.fault, s.drop()); err != nil {
			return nil, &CorruptionError{File: path.Join(o.dir, name), Position: found.end, Offset: found.next, Cause: err}
		}
		all = append(all, swap{base: base, next: found.next})
	}
	return all, nil
}

// findToRead returns a segment that is only read, in a file with the given suffix.
func (o *opening) findToRead(base Offset, suffix string) (*segment, error) {
	s := o.newSegment(base)
	s.suffix, s.capacity = suffix, 0
	s.writable.Store(false)
	return s, s.find()
}

// completeSwaps does what the process before was about to do: the replaced segments
// go, then the new ones get their names. It can be interrupted and done again.
func (o *opening) completeSwaps() error {
	all, err := o.findSwaps()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no directory, as openSegments will tell
	}
	if err != nil || len(all) == 0 {
		return err
	}
	files, err := o.listFiles()
	if err != nil {
		return err
	}
	for _, base := range files.segments {
		if all.cover(base) {
			replaced := slices.ContainsFunc(all, func(s swap) bool { return s.base == base })
			for _, suffix := range []string{logSuffix, sealSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
				if suffix == logSuffix && replaced {
					continue // by the renaming
				}
				if err := removeIfPresent(o.options.FS, path.Join(o.dir, offsetName(base, suffix))); err != nil {
					return err
				}
			}
		}
	}
	// Before their replacement has a name that says no more which of them it replaces.
	if err := o.options.FS.SyncDir(o.dir); err != nil {
		return err
	}
	for _, swap := range all {
		name := path.Join(o.dir, offsetName(swap.base, logSuffix))
		if err := o.options.FS.Rename(name+swapSuffix, name); err != nil {
			return err
		}
		o.options.Logger.Info("a segment takes the place of those it replaces", "segment", name)
	}
	return o.options.FS.SyncDir(o.dir)
}

// completeSwap removes the files of a group, but the first segment's, and gives the
// .swap file the name of that one.
func (p *Partition) completeSwap(group []*segment) error {
	files := p.files()
	for _, s := range slices.Backward(group[1:]) {
		if err := errors.Join(s.remove(), removeIfPresent(files, path.Join(p.dir, offsetName(s.base, snapshotSuffix)))); err != nil {
			return err
		}
	}
	// Its indexes are not those of the segment that gets its name.
	if err := group[0].removeIndexes(); err != nil {
		return err
	}
	if err := files.SyncDir(p.dir); err != nil {
		return err
	}
	name := group[0].name(logSuffix)
	if err := files.Rename(name+swapSuffix, name); err != nil {
		return err
	}
	return files.SyncDir(p.dir)
}
