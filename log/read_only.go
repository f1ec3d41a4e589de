package log

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/thalweg/thalweg/internal/vfs"
)

// OpenReadOnly opens topics in dir as they lie there, all of them when none is named,
// and changes nothing: no file is made, not even a lock, and no permission to write is
// asked for. dir holds partition directories, <topic>-<partition>, of a Log or of a Kafka
// broker, stopped properly or not; what matters of the files between them are the
// checkpoints of recovery points and log starts. Nobody may write to them meanwhile.
//
// A topic has the partitions that are there. Every batch is read and checked once,
// since nothing but the batches is taken at its word; the indexes are made from them
// in memory, about 20 bytes for every Options.IndexIntervalBytes. A tail that a crash
// tore is passed over and told by Partition.Recovery. Damage is a *CorruptionError,
// and messages of a format before version 2 are ErrVersion.
//
// The Log reads like any other, what is committed too. Whatever would write, and a
// wait for more at the end, is ErrReadOnly.
func OpenReadOnly(dir string, o Options, topics ...string) (_ *Log, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	o.FS = vfs.ReadOnly(o.FS)
	l := newLog(dir, o)
	l.readOnly = true
	defer func() {
		if err != nil {
			_ = l.releaseAll()
		}
	}()
	found, err := l.findPartitions(topics)
	if err != nil {
		return nil, fmt.Errorf("log: open %s for reading: %w", dir, err)
	}
	// In files of ours old batches may follow the end; in a broker's they do not belong.
	_, err = o.FS.Size(path.Join(dir, registryFile))
	ours := err == nil
	recoveryPoints, err := readOffsets(o.FS, path.Join(dir, recoveryPointFile))
	if err != nil {
		return nil, err
	}
	starts, err := readOffsets(o.FS, path.Join(dir, logStartFile))
	if err != nil {
		return nil, err
	}
	for _, tp := range found {
		topic := l.topics[tp.Topic]
		if topic == nil {
			topic = new(topicPartitions)
			l.topics[tp.Topic] = topic
		}
		p := newPartition(l, tp, TopicSpec{})
		state := openState{recoveryPoint: -1, start: -1, adopt: true, recycled: ours}
		if point, ok := recoveryPoints[tp]; ok {
			state.recoveryPoint = point
		}
		if start, ok := starts[tp]; ok {
			state.start = start
		}
		if err := p.openReadOnly(state); err != nil {
			return nil, fmt.Errorf("open %s for reading: %w", tp, err)
		}
		for len(topic.partitions) <= int(tp.Partition) {
			topic.partitions = append(topic.partitions, nil) // not in this directory
		}
		topic.partitions[tp.Partition] = p
		topic.spec.Partitions = len(topic.partitions)
	}
	return l, nil
}

// findPartitions lists the partitions of topics that have a directory, in order.
func (l *Log) findPartitions(topics []string) (found []TopicPartition, err error) {
	names, err := l.options.FS.List(l.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		tp, ok := parsePartitionDir(name)
		if !ok || len(topics) > 0 && !slices.Contains(topics, tp.Topic) {
			continue
		}
		if _, err := l.options.FS.Size(path.Join(l.dir, name)); err == nil {
			continue // a file
		}
		found = append(found, tp)
	}
	for _, topic := range topics {
		if !slices.ContainsFunc(found, func(tp TopicPartition) bool { return tp.Topic == topic }) {
			return nil, fmt.Errorf("%w: %q: there is no directory %s-0 or of another number", ErrUnknownTopic, topic, topic)
		}
	}
	return found, nil
}

// openReadOnly makes the partition readable without changing its files.
func (p *Partition) openReadOnly(state openState) (err error) {
	o := &opening{Partition: p, state: state, replay: maxOffset}
	defer func() {
		if err == nil {
			return
		}
		for _, s := range o.segments {
			_ = s.drop()
		}
	}()
	steps := []func() error{
		o.readCompaction, o.findSegments, o.readEpochs, o.scanAll, o.settleEpochs, o.rebuildProducers, o.publish,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// findSegments finds the segments, and for those that were being replaced the ones that
// take their place.
func (o *opening) findSegments() (err error) {
	if o.files, err = o.listFiles(); err != nil {
		return err
	}
	swaps, err := o.findSwaps()
	if err != nil {
		return err
	}
	for _, base := range o.files.segments {
		if swaps.cover(base) {
			continue
		}
		s, err := o.findToRead(base, logSuffix)
		if err != nil {
			return err
		}
		o.segments = append(o.segments, s)
	}
	for _, swap := range swaps {
		s, err := o.findToRead(swap.base, logSuffix+swapSuffix)
		if err != nil {
			return err
		}
		o.segments = append(o.segments, s)
	}
	slices.SortFunc(o.segments, func(a, b *segment) int { return int(min(max(a.base-b.base, -1), 1)) })
	return nil
}

// scanAll checks every batch, and ends the log where a crash tore it.
func (o *opening) scanAll() error {
	for i, s := range o.segments {
		if i > 0 {
			before := o.segments[i-1]
			if s.base < before.next {
				return &CorruptionError{File: s.name(logSuffix), Offset: before.next,
					Cause: fmt.Errorf("the segment before it ends at offset %d", before.next)}
			}
			before.gapAfter = s.base > before.next
		}
		found, torn, err := o.scanReadOnly(i)
		if err != nil {
			return err
		}
		o.recovery.ScannedBytes += found.end
		o.replay = min(o.replay, s.base)
		o.walked = append(o.walked, s)
		if found.fault == nil {
			continue
		}
		if !torn {
			return found.corruption(s)
		}
		o.recovery.CutFrom, o.recovery.CutBytes, o.recovery.CutSegments = found.next, found.dirty, 1
		for _, later := range o.segments[i+1:] {
			o.recovery.CutSegments++
			o.recovery.CutBytes += later.allocated
			_ = later.drop()
		}
		o.segments = o.segments[:i+1]
		o.options.Logger.Warn("a torn tail is passed over", "partition", o.name.String(), "segment", s.name(logSuffix),
			"position", found.end, "offset", int64(found.next), "bytes", o.recovery.CutBytes, "segments", o.recovery.CutSegments, "cause", found.fault)
		return nil
	}
	return nil
}

// scanReadOnly checks every batch of segment i. torn tells whether a fault is where a
// crash cut off a write.
func (o *opening) scanReadOnly(i int) (found scanned, torn bool, err error) {
	s := o.segments[i]
	if err := s.pin(); err != nil {
		return found, false, err
	}
	defer s.unpin()
	found = s.scan(s.allocated, scanOptions{gapsBelow: maxOffset, recycled: o.state.recycled, each: func(at int64, b *Batch) error { return o.checkEpoch(s, at, b) }})
	return found, found.fault != nil && o.torn(s, found, i == len(o.segments)-1), nil
}

// torn tells whether a fault is where a crash cut off a write, and not damage: above
// the recovery point, or, where that is not known, in the last segment, cut short and
// with no good batch behind it.
func (o *opening) torn(s *segment, found scanned, last bool) bool {
	switch {
	case errors.Is(found.fault, errLegacyFormat), errors.Is(found.fault, vfs.ErrFault), s.wholeBatchAt(found.end):
		return false
	case o.state.recoveryPoint >= 0:
		return found.certain() >= o.state.recoveryPoint
	}
	return last && s.cutShort(found) && !s.goodBatchAfter(found)
}

// publish makes what was found the partition's state.
func (o *opening) publish() error {
	p := o.Partition
	if len(o.segments) == 0 {
		o.segments = append(o.segments, newSegment(o.options.FS, o.dir, max(o.state.start, 0), o.options.IndexIntervalBytes))
	}
	first, end := o.segments[0].base, o.logEnd()
	start := min(max(o.state.start, first), end)
	kept := p.aborted.Load().between(start, maxOffset)
	p.aborted.Store(&kept)
	p.segments.Store(&o.segments)
	p.start.Store(int64(start))
	p.end.Store(int64(end))
	p.durable.Store(int64(end))
	p.horizon.Store(int64(o.compaction.horizon))
	if o.compactionLost {
		p.horizon.Store(int64(end))
	}
	p.publishLocked()
	return nil
}
