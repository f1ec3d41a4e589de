package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// openState is what the files beside the partition directories say of a partition.
type openState struct {
	recoveryPoint Offset // all below is known durable; -1 when unknown
	start         Offset // log start, -1 when unknown
	stop          cleanStop
	stopped       bool // stop is valid
	recycled      bool // for a reader: what a file held before may follow its end
	adopt         bool // the directory is not ours yet: refuse all damage in it
}

// opening is a partition while its files are read.
type opening struct {
	*Partition
	state    openState
	files    partitionFiles
	segments []*segment
	known    epochs // of the leader epoch file
	rebuild  bool   // that file is to be made anew

	compactionLost bool // the compaction state was damaged

	newest    LeaderEpoch // of the file and all batches seen
	hasEpoch  bool        // newest is valid
	replay    Offset      // aborted transactions are found by a replay from here on, or from earlier
	uncertain Offset      // snapshots above may be of records that are gone: producers are rebuilt from here on, or from earlier
	walked    []*segment  // those whose aborted transactions the replay tells
	changed   bool        // files came, went or were cut: the directory needs a sync
}

// partitionFiles are the names in a partition directory that mean something.
type partitionFiles struct {
	segments  []Offset
	snapshots []Offset
	leftovers []string // of an operation that was cut off
}

// leftoverSuffixes end the names of files of operations that were cut off. A .swap
// file that completeSwaps leaves is not to be put in place.
var leftoverSuffixes = []string{temporarySuffix, spareSuffix, cleanedSuffix, swapSuffix}

func (p *Partition) listFiles() (files partitionFiles, err error) {
	names, err := p.options.FS.List(p.dir)
	if err != nil {
		return files, err
	}
	for _, name := range names {
		if base, ok := parseOffsetName(name, logSuffix); ok {
			files.segments = append(files.segments, base)
		} else if offset, ok := parseOffsetName(name, snapshotSuffix); ok {
			files.snapshots = append(files.snapshots, offset)
		} else if slices.Contains(leftoverSuffixes, path.Ext(name)) {
			files.leftovers = append(files.leftovers, name)
		}
	}
	// Equal digits: the names' order is the offsets' order.
	return files, nil
}

// errStaleStop says that the proof of a clean stop is of another state of the
// files than the one found.
var errStaleStop = errors.New("the proof of a clean stop does not fit the log")

// open reads the partition's files, cuts away what a crash tore, and leaves the
// partition ready for use, all of it durable. Damage below the recovery point is a
// *CorruptionError, and no record is touched then.
func (p *Partition) open(state openState) error {
	err := p.openAs(state)
	if errors.Is(err, errStaleStop) {
		p.options.Logger.Warn("the partition changed after the clean stop", "partition", p.name.String())
		state.stopped = false
		err = p.openAs(state)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.name, err)
	}
	return nil
}

func (p *Partition) openAs(state openState) (err error) {
	if p.isEmpty(state) {
		p.openEmpty(state)
		return nil
	}
	o := &opening{Partition: p, state: state, replay: maxOffset, uncertain: maxOffset}
	p.recovery = Recovery{Clean: state.stopped, CutFrom: -1}
	p.aborted.Store(new(abortedTransactions))
	defer func() {
		if err != nil {
			for _, s := range o.segments {
				_ = s.drop()
			}
		}
	}()
	steps := []func() error{
		o.readCompaction, o.readManifest, o.completeSwaps, o.openSegments, o.readEpochs, o.checkSegments, o.checkStart,
		o.settleEpochs, o.rebuildProducers, o.settle,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// isEmpty tells whether the partition's directory is empty, and may be.
func (p *Partition) isEmpty(state openState) bool {
	names, err := p.options.FS.List(p.dir)
	return err == nil && len(names) == 0 && state.recoveryPoint <= 0 && state.start <= 0 && (!state.stopped || state.stop.End == 0)
}

// openEmpty makes the partition one that holds nothing, without a file: the first
// append makes it.
func (p *Partition) openEmpty(state openState) {
	p.recovery = Recovery{Clean: state.stopped, CutFrom: -1}
	if state.stopped {
		p.epoch = state.stop.Epoch
	}
	p.producers = newProducers(nil, p.options.ProducerExpiry)
	p.opened = p.options.Now()
	first := p.newSegment(0)
	first.absent = true
	first.appended.Store(p.opened.UnixMilli())
	p.segments.Store(&[]*segment{first})
	p.publishLocked() // nobody else has it yet
}

// openSegments finds all segment files that are still wanted.
func (o *opening) openSegments() (err error) {
	if o.files, err = o.listFiles(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &CorruptionError{File: o.dir, Offset: -1, Cause: errors.New("the partition's directory is missing")}
		}
		return err
	}
	for _, base := range o.files.segments {
		s := o.newSegment(base)
		if err := s.find(); err != nil {
			return err
		}
		s.appended.Store(o.options.Now().UnixMilli())
		o.segments = append(o.segments, s)
	}
	return nil
}

// readEpochs reads the leader epoch file. One that is missing or cannot be read is
// made anew from the batches.
func (o *opening) readEpochs() error {
	name := path.Join(o.dir, leaderEpochFile)
	b, err := readSmallFile(o.options.FS, name)
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err == nil {
		o.known, err = decodeEpochs(b)
	}
	if err != nil {
		o.rebuild = true
		if !errors.Is(err, fs.ErrNotExist) {
			o.options.Logger.Warn("leader epoch file is made anew", "file", name, "error", err)
		}
	}
	o.newest, o.hasEpoch = o.known.last()
	return nil
}

// checkSegments goes through the segments in order and finds out where the log
// ends. Those below the recovery point, or all after a clean stop, are taken at
// their seals' word where these fit; the others are scanned.
func (o *opening) checkSegments() error {
	if err := o.finishDeletion(); err != nil {
		return err
	}
	for i := 0; i < len(o.segments); i++ {
		s := o.segments[i]
		last := i == len(o.segments)-1
		if i > 0 && s.base != o.segments[i-1].next {
			before := o.segments[i-1]
			gap := before.next < o.gapsBelow() && s.base > before.next && (before.seal == nil || before.seal.gapAfter)
			if !gap {
				if done, err := o.misplaced(i); done || err != nil {
					return err
				}
				i--
				continue
			}
			before.gapAfter = true
		}
		durable := o.state.stopped || !last && o.segments[i+1].base <= o.state.recoveryPoint
		if durable && o.trustSeal(s) {
			continue
		}
		found, err := o.scanSegment(s, last)
		if err != nil {
			return err
		}
		if found.fault != nil {
			return o.cut(i, found)
		}
	}
	end := o.logEnd()
	if o.state.stopped && end != o.state.stop.End {
		return errStaleStop
	}
	if end < o.state.recoveryPoint && !o.state.adopt && o.state.start < o.state.recoveryPoint {
		return o.missing(end)
	}
	return nil
}

// finishDeletion removes what a deletion that was cut off left below the start: a
// crash can leave holes in it. Deletions make sure of the snapshot at the first
// segment they keep; where there is none, nothing was being deleted, and the
// segments may be needed to rebuild producers.
func (o *opening) finishDeletion() error {
	for i := len(o.segments) - 1; i > 0; i-- {
		base := o.segments[i].base
		if base > max(o.state.start, o.remote.Load().localStart) || !slices.Contains(o.files.snapshots, base) {
			continue
		}
		if _, at := o.loadSnapshot([]Offset{base}, base); at == base {
			return o.dropSegments(0, i)
		}
	}
	return nil
}

// logEnd is the offset after the last batch of the segments there are.
func (o *opening) logEnd() Offset {
	if len(o.segments) == 0 {
		return max(o.state.start, o.remote.Load().localStart, 0)
	}
	return o.segments[len(o.segments)-1].next
}

// missing is the error for a log that ends below its recovery point.
func (o *opening) missing(end Offset) error {
	file, position := o.dir, int64(0)
	if n := len(o.segments); n > 0 {
		file, position = o.segments[n-1].name(logSuffix), o.segments[n-1].end.Load()
	}
	return &CorruptionError{File: file, Position: position, Offset: end,
		Cause: fmt.Errorf("the log ends at offset %d, but all below %d was durable", end, o.state.recoveryPoint)}
}

// misplaced deals with segment i, whose base is not where the one before it ends.
// done is true when the log ends before it.
func (o *opening) misplaced(i int) (done bool, err error) {
	s, expected := o.segments[i], o.segments[i-1].next
	if err := s.pin(); err != nil {
		return false, err
	}
	found := s.scan(s.allocated, scanOptions{gapsBelow: maxOffset, recycled: !o.state.adopt})
	s.unpin()
	if found.fault == nil && found.end == 0 {
		// Left by a roll that failed, or emptied by the crash.
		return false, o.dropSegments(i, i+1)
	}
	if min(expected, s.base) < o.state.recoveryPoint || o.state.adopt {
		return true, &CorruptionError{File: s.name(logSuffix), Offset: expected,
			Cause: fmt.Errorf("the segment before it ends at offset %d", expected)}
	}
	return true, o.cut(i-1, scanned{end: o.segments[i-1].end.Load(), next: expected})
}

// trustSeal takes the segment's end from its seal when that fits the file, and
// checks that the data agrees where it ends.
func (o *opening) trustSeal(s *segment) bool {
	b, err := readSmallFile(o.options.FS, s.name(sealSuffix))
	if err != nil {
		return false
	}
	made, err := decodeSeal(b)
	if err != nil || made.base != s.base || made.size != s.allocated {
		return false
	}
	s.forget()
	s.loaded, s.seal, s.gaps = false, &made, made.gaps
	s.end.Store(made.size)
	s.next, s.maxTimeOffset, s.lastBatch = made.next, made.maxTimeOffset, made.lastBatch
	s.maxTime.Store(made.maxTime)
	if made.appended != neverAppended {
		s.appended.Store(made.appended)
	}
	if made.size > 0 && !s.endsWith(made) {
		return false
	}
	s.synced.Store(made.size)
	txns, err := loadIndex(s, txnIndexSuffix, made.txnIndex, func(b []byte) ([]abortedTransaction, error) {
		return decodeTxnIndex(b)
	})
	if err != nil || len(txns) > 0 && (txns[0].last < s.base || txns[len(txns)-1].last >= s.next) {
		// The data is as it should be, but who was aborted takes a replay.
		o.replay = min(o.replay, s.base)
		o.walked = append(o.walked, s)
		return true
	}
	more := append(*o.aborted.Load(), txns...)
	o.aborted.Store(&more)
	return true
}

// scanSegment reads all of s.
func (o *opening) scanSegment(s *segment, last bool) (scanned, error) {
	if err := s.removeIndexes(); err != nil {
		return scanned{}, err
	}
	if err := s.pin(); err != nil {
		return scanned{}, err
	}
	defer s.unpin()
	var disagree error
	found := s.scan(s.allocated, scanOptions{
		gapsBelow: o.gapsBelow(),
		recycled:  !o.state.adopt,
		each: func(at int64, b *Batch) error {
			disagree = o.checkEpoch(s, at, b)
			return disagree
		},
	})
	if disagree != nil {
		return found, disagree
	}
	o.recovery.ScannedBytes += found.end
	o.replay = min(o.replay, s.base)
	if found.next > o.state.recoveryPoint || o.state.adopt {
		o.uncertain = min(o.uncertain, s.base)
	}
	o.walked = append(o.walked, s)
	if found.fault == nil {
		return found, nil
	}
	tolerated := found.certain() >= o.state.recoveryPoint
	if o.state.adopt {
		tolerated = o.torn(s, found, last)
	}
	if !tolerated {
		return found, found.corruption(s)
	}
	return found, nil
}

// checkEpoch holds a batch's epoch, which no checksum covers, against the leader
// epoch file. The file is durable before the first batch of an epoch is written,
// so one of them is damaged when they disagree. Which one, the bytes do not tell.
func (o *opening) checkEpoch(s *segment, at int64, b *Batch) error {
	if err := notTheEnd(b); err != nil {
		return &CorruptionError{File: s.name(logSuffix), Position: at, Offset: b.Base, Cause: err}
	}
	if !o.hasEpoch || b.Epoch > o.newest {
		o.newest, o.hasEpoch = b.Epoch, true
	}
	if o.rebuild {
		return nil
	}
	if known, _, _, ok := o.known.at(b.Base); ok && known == b.Epoch {
		return nil
	}
	if o.state.adopt {
		o.rebuild = true
		return nil
	}
	return &CorruptionError{File: s.name(logSuffix), Position: at, Offset: b.Base,
		Cause: fmt.Errorf("its batch has leader epoch %d, which %s does not say (remove that file to have it made anew from the segments)",
			b.Epoch, path.Join(o.dir, leaderEpochFile))}
}

// cut ends the log inside segment i, where the scan stopped, and removes all
// later segments.
func (o *opening) cut(i int, found scanned) error {
	s := o.segments[i]
	o.recovery.CutFrom = found.next
	o.recovery.CutBytes = found.dirty
	if found.fault != nil || found.dirty > 0 {
		o.recovery.CutSegments = 1
	}
	for _, later := range o.segments[i+1:] {
		o.recovery.CutSegments++
		o.recovery.CutBytes += later.allocated
	}
	o.options.Logger.Warn("torn tail is cut", "partition", o.name.String(), "segment", s.name(logSuffix),
		"position", found.end, "offset", int64(found.next), "bytes", o.recovery.CutBytes, "segments", o.recovery.CutSegments,
		"cause", fmt.Sprint(found.fault))
	return o.dropSegments(i+1, len(o.segments))
}

// dropSegments removes segments [from, to), the newest first, so that an
// interruption leaves a log without holes.
func (o *opening) dropSegments(from, to int) error {
	for _, s := range slices.Backward(o.segments[from:to]) {
		_ = s.drop()
		if err := s.remove(); err != nil {
			return err
		}
		o.walked = slices.DeleteFunc(o.walked, func(w *segment) bool { return w == s })
	}
	o.changed = o.changed || to > from
	o.segments = slices.Delete(o.segments, from, to)
	return nil
}

// checkStart brings segments and log start together.
func (o *opening) checkStart() error {
	start, away := o.state.start, o.remote.Load()
	if start < 0 {
		start = 0
		if len(o.segments) > 0 {
			start = o.segments[0].base
		}
		if len(away.segments) > 0 {
			start = min(start, away.segments[0].base)
		}
	}
	if len(o.segments) > 0 && start < o.segments[0].base && !away.covers(start, o.segments[0].base) {
		if start < o.state.recoveryPoint {
			return &CorruptionError{File: o.segments[0].name(logSuffix), Offset: start,
				Cause: fmt.Errorf("it is the first segment, but the log starts at offset %d", start)}
		}
		// The crash took the first segment, which was not durable, and so the rest
		// counts for nothing.
		o.recovery.CutFrom = start
		for _, s := range o.segments {
			o.recovery.CutSegments++
			o.recovery.CutBytes += s.allocated
		}
		if err := o.dropSegments(0, len(o.segments)); err != nil {
			return err
		}
	}
	o.Partition.start.Store(int64(start))
	return nil
}

// settleEpochs makes the epochs of all records known, and decides in which epoch
// the next batch is written.
func (o *opening) settleEpochs() error {
	known := o.known.truncate(o.logEnd())
	if !o.rebuild {
		if err := o.checkEpochs(known); err != nil {
			return err
		}
	}
	if o.rebuild {
		known = nil
		for _, s := range o.segments {
			err := s.eachBatch(s.base, func(b *Batch) error {
				if err := notTheEnd(b); err != nil {
					return err
				}
				if last, ok := known.last(); ok && b.Epoch < last {
					return fmt.Errorf("%w: leader epoch is %d, that of an earlier batch %d", ErrInvalidBatch, b.Epoch, last)
				}
				known = known.with(b.Epoch, b.Base)
				return nil
			})
			if err != nil {
				return err
			}
		}
		if last, ok := known.last(); ok {
			o.newest, o.hasEpoch = max(last, o.newest), true
		}
	}
	o.epochs.Store(&known)
	switch {
	case o.state.stopped:
		o.epoch = max(o.state.stop.Epoch, o.newest)
	case o.state.adopt, !o.hasEpoch:
		o.epoch = max(o.newest, 0)
	default:
		// What this node wrote last may be gone: the same offsets must not mean
		// other records under the same epoch.
		o.epoch = o.newest + 1
	}
	return nil
}

// notTheEnd returns why a batch's epoch cannot be one.
func notTheEnd(b *Batch) error {
	if b.Epoch == endOfEpochs {
		return fmt.Errorf("%w: no leader epoch comes after %d", ErrInvalidBatch, b.Epoch)
	}
	return nil
}

// checkEpochs holds the batches where epochs begin and end against the leader
// epoch file, in segments that were not scanned.
func (o *opening) checkEpochs(known epochs) error {
	check := func(off Offset) error {
		s := o.segments[find(o.segments, off)]
		if off < s.base || off >= s.next {
			return nil
		}
		if err := s.pin(); err != nil {
			return err
		}
		defer s.unpin()
		at, err := s.seek(off, s.end.Load())
		if err != nil {
			return err
		}
		b, err := s.batchAt(at)
		if err != nil {
			return err
		}
		return o.checkEpoch(s, at, &b)
	}
	if len(o.segments) == 0 {
		return nil
	}
	for _, entry := range known {
		if err := errors.Join(check(entry.Start-1), check(entry.Start)); err != nil {
			return err
		}
	}
	return check(o.logEnd() - 1)
}

// rebuildProducers takes the newest snapshot that is old enough and replays the
// log from there.
func (o *opening) rebuildProducers() error {
	end := o.logEnd()
	replay := min(o.replay, end)
	for _, s := range o.walked {
		// Their part of the index of aborted transactions comes from the replay.
		kept := slices.DeleteFunc(slices.Clone(*o.aborted.Load()), func(t abortedTransaction) bool {
			return t.last >= s.base && t.last < s.next
		})
		o.aborted.Store(&kept)
	}
	p := o.Partition
	replayed, from := p.loadSnapshot(o.files.snapshots, replay)
	now := o.options.Now().UnixMilli()
	var hidden abortedTransactions
	for _, s := range o.segments {
		if s.next <= from {
			continue
		}
		wanted := slices.Contains(o.walked, s)
		err := s.eachBatch(max(from, s.base), func(b *Batch) error {
			t, isAbort, err := replayed.replay(b, now)
			if err == nil && isAbort && wanted {
				hidden = append(hidden, t)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	all := append(slices.Clone(*o.aborted.Load()), hidden...)
	slices.SortFunc(all, func(a, b abortedTransaction) int { return int(a.last - b.last) })
	o.aborted.Store(&all)
	o.producers = replayed
	// A segment below the recovery point that was read for its indexes alone does
	// not put later snapshots in doubt, and they know more: what compaction took
	// out of the log is not replayed.
	certain := o.uncertain
	if !o.compactionLost {
		certain = max(certain, o.compaction.touched) // which is never cut off
	}
	if limit := min(certain, end); from < limit {
		var latest *producers
		if latest, from = p.loadSnapshot(o.files.snapshots, limit); from > replay {
			o.producers = latest
			if err := latest.replayAll(o.segments, from, end, now); err != nil {
				return err
			}
		}
	}
	p.touched = from < end
	return nil
}

// loadSnapshot returns the state of the newest good snapshot at or below limit and
// its offset, or empty state and 0. Snapshots of what has been compacted since do
// not count: the marker of a transaction that one of them has open may be gone.
func (p *Partition) loadSnapshot(offsets []Offset, limit Offset) (*producers, Offset) {
	for _, offset := range slices.Backward(offsets) {
		if offset > limit || offset < p.compaction.touched && p.compaction.touched <= limit {
			continue
		}
		name := path.Join(p.dir, offsetName(offset, snapshotSuffix))
		b, err := readSmallFile(p.options.FS, name)
		if err == nil {
			var loaded *producers
			if loaded, err = decodeSnapshot(b, p.options.ProducerExpiry); err == nil {
				return loaded, offset
			}
		}
		p.options.Logger.Warn("producer snapshot is not used", "file", name, "error", err)
	}
	return newProducers(nil, p.options.ProducerExpiry), 0
}

// settle makes what was found the partition's state, and durable.
func (o *opening) settle() error {
	p, files := o.Partition, o.options.FS
	start, end := Offset(p.start.Load()), o.logEnd()
	for _, name := range o.files.leftovers {
		if err := removeIfPresent(files, path.Join(p.dir, name)); err != nil {
			return err
		}
		o.changed = true
	}
	if start > end {
		// The crash took what was about to be deleted. The memory of who wrote it
		// stays.
		snapshot := path.Join(p.dir, offsetName(start, snapshotSuffix))
		if err := replaceFile(files, snapshot, o.producers.encodeSnapshot(o.options.Now().UnixMilli())); err != nil {
			return err
		}
		if err := o.dropSegments(0, len(o.segments)); err != nil {
			return err
		}
		end = start
	}
	if err := o.settleActive(end); err != nil {
		return err
	}
	// A snapshot of records that are gone would be true of other ones some day.
	for _, offset := range o.files.snapshots {
		if offset == end || offset < end && (o.isBase(offset) || offset == o.compaction.touched) {
			continue
		}
		if err := removeIfPresent(files, path.Join(p.dir, offsetName(offset, snapshotSuffix))); err != nil {
			return err
		}
		o.changed = true
	}
	p.touched = p.touched || o.changed || !o.state.stopped || len(o.walked) > 0
	if o.changed || !o.state.stopped {
		if err := files.SyncDir(p.dir); err != nil {
			return err
		}
	}
	known := p.epochs.Load().deleteBefore(min(start, o.segments[0].base))
	p.epochs.Store(&known)
	if o.rebuild && len(known) > 0 {
		if err := replaceFile(files, path.Join(p.dir, leaderEpochFile), encodeEpochs(known)); err != nil {
			return err
		}
	}
	away, err := o.settleRemote(start, end)
	if err != nil {
		return err
	}
	kept := append(away, *p.aborted.Load()...).between(start, maxOffset)
	p.aborted.Store(&kept)
	if err := o.settleCompaction(); err != nil {
		return err
	}
	p.opened = o.options.Now()

	p.segments.Store(&o.segments)
	p.end.Store(int64(end))
	p.durable.Store(int64(end))
	p.publishLocked()
	return nil
}

func (o *opening) isBase(offset Offset) bool {
	return slices.ContainsFunc(o.segments, func(s *segment) bool { return s.base == offset })
}

// repair makes what a scan found durable: there are no bytes behind the end, and those
// of the batches from off on are written anew.
func (s *segment) repair(off Offset) error {
	if err := s.pin(); err != nil {
		return err
	}
	defer s.unpin()
	// Whatever follows the end must not look like batches one day.
	if s.allocated > s.end.Load() {
		if err := s.file.Truncate(s.end.Load()); err != nil {
			return err
		}
		s.allocated = s.end.Load()
	}
	if err := s.rewrite(off); err != nil {
		return err
	}
	return s.syncPinned()
}

// rewrite writes the batches from off on once more. After a sync that failed, the
// operating system may hold pages for clean that never reached the disk; a sync
// alone would not write them. By calls: no page is mapped yet, and each would cost a fault.
func (s *segment) rewrite(off Offset) error {
	end := s.end.Load()
	at, err := s.seek(off, end)
	if err != nil {
		return err
	}
	buffer := make([]byte, min(end-at, 256<<10))
	for at < end {
		n := copy(buffer, s.data[at:end])
		if err := s.mapping.WriteCall(at, buffer[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// settleActive cuts and syncs the segments that were scanned, seals all but the
// last, and opens that one for appends.
func (o *opening) settleActive(end Offset) error {
	// Appending leaves no gaps in the last segment, and opening relies on that: one from
	// elsewhere that has some is not appended to.
	if n := len(o.segments); n == 0 || o.segments[n-1].next != end || o.state.adopt && o.segments[n-1].gaps {
		s, err := o.createSegment(end)
		if err != nil {
			return err
		}
		o.segments = append(o.segments, s)
		o.changed = true
	}
	for i, s := range o.segments {
		last := i == len(o.segments)-1
		scannedHere := slices.Contains(o.walked, s)
		if scannedHere {
			if err := s.repair(o.state.recoveryPoint); err != nil {
				return err
			}
		}
		if last {
			s.since = o.options.Now()
			if err := s.pin(); err != nil {
				return err
			}
			_, _, err := s.loadIndexes()
			s.unpin()
			if err != nil {
				return err
			}
			s.seal = nil
			break
		}
		if scannedHere {
			_, _, err := s.loadIndexes()
			if err == nil {
				err = s.writeIndexes(o.aborted.Load().between(s.base, s.next))
			}
			if err != nil {
				o.options.Logger.Warn("indexes of a sealed segment are not written", "segment", s.name(logSuffix), "error", err)
			}
		}
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}
