package log

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/thalweg/thalweg/internal/vfs"
)

// Log is all partitions below one directory. Its methods may be called
// concurrently.
type Log struct {
	dir      string
	options  Options // resolved
	readOnly bool    // from OpenReadOnly
	lock     io.Closer

	builders      sync.Pool // of *BatchBuilder
	compressors   compressors
	decoders      decoders
	ownersChanged signal
	topicsChanged signal

	populating chan *segment // pinned; segments whose next pages are to be present
	compacting chan struct{} // semaphore: one partition is compacted at a time
	syncing    chan struct{} // semaphore: so many partitions sync at a time
	open       *openSegments
	stop       chan struct{} // ends the goroutines counted by stopped
	stopped    sync.WaitGroup

	// admin serialises creating, deleting, checkpoints' counterparts and closing.
	// It is taken before everything else.
	admin    sync.Mutex
	registry map[string]registryTopic // as on disk
	owners   Owners
	isClosed bool
	closeErr error

	mu     sync.RWMutex // guards the fields below; not held across I/O
	topics map[string]*topicPartitions
	all    []*Partition // of topics, in order; nil when it has to be made anew

	checkpointMu   sync.Mutex // serialises Checkpoint; taken after Partition.mu
	recoveryPoints string     // as written last
	logStarts      string
}

// topicPartitions is an open topic.
type topicPartitions struct {
	spec       TopicSpec
	partitions []*Partition
}

// Open opens dir, creating it, and recovers every partition. Only one Log at a
// time can have dir open; another gets vfs.ErrLocked.
//
// Damage below a partition's recovery point is a *CorruptionError that names file,
// position and offset. Nothing is opened then, and no record was touched.
func Open(dir string, o Options) (_ *Log, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := newLog(dir, o)
	if err := vfs.MkdirAllDurable(o.FS, dir); err != nil {
		return nil, fmt.Errorf("log: open %s: %w", dir, err)
	}
	if l.lock, err = o.FS.Lock(path.Join(dir, lockFile)); err != nil {
		return nil, fmt.Errorf("log: open %s: %w", dir, err)
	}
	if err := l.recover(); err != nil {
		_ = l.releaseAll()
		_ = l.lock.Close()
		return nil, err
	}
	l.stopped.Go(l.populateLoop)
	if o.RetentionCheckInterval > 0 {
		l.stopped.Go(l.retentionLoop)
	}
	if l.options.Remote != nil && l.options.RemoteInterval > 0 {
		l.stopped.Go(l.remoteLoop)
	}
	if l.options.CompactionInterval > 0 {
		l.stopped.Go(l.compactLoop)
	}
	return l, nil
}

func newLog(dir string, o Options) *Log {
	l := &Log{
		dir:        dir,
		options:    o,
		populating: make(chan *segment, 16),
		compacting: make(chan struct{}, 1),
		syncing:    make(chan struct{}, maxSyncing),
		open:       &openSegments{limit: o.MaxOpenSegments},
		stop:       make(chan struct{}),
		topics:     make(map[string]*topicPartitions),
	}
	l.decoders.limit = o.MaxDecompressedBytes
	l.builders.New = func() any { return new(BatchBuilder) }
	return l
}

// releaseAll lets go of the files of all partitions, for a log that is not opened or
// was only read.
func (l *Log) releaseAll() (err error) {
	for p := range l.Partitions() {
		err = errors.Join(err, p.release())
	}
	return err
}

// recover opens all that is in the directory.
func (l *Log) recover() (err error) {
	files := l.options.FS
	if l.registry, err = readRegistry(files, l.dir); err != nil {
		return err
	}
	names, err := files.List(l.dir)
	if err != nil {
		return err
	}
	if err := l.finishDeletions(names); err != nil {
		return err
	}
	recoveryPoints, err := readOffsets(files, path.Join(l.dir, recoveryPointFile))
	if err != nil {
		return err
	}
	starts, err := readOffsets(files, path.Join(l.dir, logStartFile))
	if err != nil {
		return err
	}
	stops := l.readCleanStops()
	for _, name := range slices.Sorted(maps.Keys(l.registry)) {
		topic := &topicPartitions{spec: l.registry[name].Spec}
		l.topics[name] = topic
		for i := range topic.spec.Partitions {
			topic.partitions = append(topic.partitions, newPartition(l, TopicPartition{Topic: name, Partition: PartitionID(i)}, topic.spec))
		}
	}
	err = inParallel(l.partitions(), func(p *Partition) error {
		state := openState{recoveryPoint: recoveryPoints[p.name], start: starts[p.name]}
		if starts == nil {
			state.start = -1 // the file is not there
		}
		state.stop, state.stopped = stops[p.name]
		return p.open(state)
	})
	if err != nil {
		return err
	}
	l.warnOfStrangers(names)
	// From here on a stop is not clean until Close says so. The proof goes before
	// anything can be appended.
	if err := removeIfPresent(files, path.Join(l.dir, cleanStopFile)); err != nil {
		return err
	}
	if err := files.SyncDir(l.dir); err != nil {
		return err
	}
	return l.Checkpoint()
}

// readOffsets reads a checkpoint file; a missing one is empty.
func readOffsets(files vfs.FS, name string) (map[TopicPartition]Offset, error) {
	b, err := readSmallFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := decodeOffsets(b)
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return nil, &CorruptionError{File: name, Offset: -1, Cause: err}
	}
	return offsets, nil
}

// readCleanStops reads the proof of a clean stop. Without a good one the stop was
// not clean.
func (l *Log) readCleanStops() map[TopicPartition]cleanStop {
	name := path.Join(l.dir, cleanStopFile)
	b, err := readSmallFile(l.options.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var stops map[TopicPartition]cleanStop
	if err == nil {
		stops, err = decodeCleanStops(b)
	}
	if err != nil {
		l.options.Logger.Warn("the proof of a clean stop is not used", "file", name, "error", err)
	}
	return stops
}

// deletedSuffix ends the name of a partition directory on its way out. It cannot
// be the name of a partition.
const deletedSuffix = ".-delete"

// finishDeletions removes what an interrupted Delete left.
func (l *Log) finishDeletions(names []string) error {
	var deleting []string
	for name, topic := range l.registry {
		if topic.Deleting {
			deleting = append(deleting, name)
		}
	}
	for _, name := range slices.Sorted(slices.Values(deleting)) {
		if err := l.removeTopic(name, names); err != nil {
			return err
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, deletedSuffix) {
			if err := l.options.FS.RemoveAll(path.Join(l.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// warnOfStrangers says which directories look like partitions of topics that are
// not registered. They are left alone: data is deleted because somebody said so,
// never because nobody knows it.
func (l *Log) warnOfStrangers(names []string) {
	for _, name := range names {
		tp, ok := parsePartitionDir(name)
		if !ok {
			continue
		}
		if topic, known := l.topics[tp.Topic]; known && int(tp.Partition) < len(topic.partitions) {
			continue
		}
		l.options.Logger.Warn("directory belongs to no known topic; create the topic to use it", "directory", path.Join(l.dir, name))
	}
}

// SetOwners installs the authority on producer ids. Without one each id is its own
// owner, never over.
func (l *Log) SetOwners(o Owners) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.owners = o
	for p := range l.Partitions() {
		p.mu.Lock()
		p.producers.setOwners(o)
		p.mu.Unlock()
	}
	l.OwnersChanged()
}

// OwnersChanged wakes appends that wait for an owner to become known. Whoever
// implements Owners calls it after it learnt of new ones; appends look again from
// time to time without it.
func (l *Log) OwnersChanged() { l.ownersChanged.broadcast() }

// Alter changes the settings of a topic while it is used. Appends, reads and retention
// follow the new ones at once, the size of segments from the next one on. Partitions
// can be added; a key may then belong to another one. Fewer are refused, since that
// would drop records, and so is a change of Compact: the error is ErrNotAlterable. One
// that is interrupted has changed everything or nothing.
func (l *Log) Alter(topic string, spec TopicSpec) error {
	if err := spec.validate(); err != nil {
		return err
	}
	if spec.Remote && l.options.Remote == nil {
		return fmt.Errorf("log: topic %q has Remote set, but there is no object store: set Options.Remote", topic)
	}
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.isClosed {
		return ErrClosed
	}
	entry, ok := l.registry[topic]
	if !ok || entry.Deleting {
		return fmt.Errorf("%w: %q", ErrUnknownTopic, topic)
	}
	has := entry.Spec
	switch {
	case len(has.differences(spec)) == 0:
		return nil
	case spec.Partitions < has.Partitions:
		return fmt.Errorf("%w: topic %q has %d partitions and cannot have %d: those taken away would take their records with them",
			ErrNotAlterable, topic, has.Partitions, spec.Partitions)
	case spec.Compact != has.Compact:
		return fmt.Errorf("%w: topic %q cannot change Compact: make another topic and copy the records", ErrNotAlterable, topic)
	}
	before := l.topics[topic]
	added, err := l.createPartitions(topic, spec, has.Partitions)
	if err == nil {
		err = l.register(map[string]TopicSpec{topic: spec}, added)
	}
	if err != nil {
		for _, p := range added {
			_ = p.release()
		}
		return fmt.Errorf("alter topic %q: %w", topic, err)
	}
	for _, p := range before.partitions {
		p.alter(spec)
	}
	if len(added) > 0 {
		l.topicsChanged.broadcast()
	}
	return nil
}

// writeRegistry replaces entries of the registry; nil takes one away.
func (l *Log) writeRegistry(entries map[string]*registryTopic) error {
	next := maps.Clone(l.registry)
	for topic, entry := range entries {
		delete(next, topic)
		if entry != nil {
			next[topic] = *entry
		}
	}
	if err := replaceFile(l.options.FS, path.Join(l.dir, registryFile), encodeRegistry(next)); err != nil {
		return err
	}
	l.registry = next
	return nil
}

// setTopic shows a topic to everybody, or takes it away when it is nil.
func (l *Log) setTopic(name string, topic *topicPartitions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
	if topic == nil {
		delete(l.topics, name)
		return
	}
	l.topics[name] = topic
}

// Delete removes a topic with all its records. Readers keep what they pinned and
// get ErrClosed afterwards. A deletion that is interrupted is completed by the
// next Open.
func (l *Log) Delete(topic string) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.isClosed {
		return ErrClosed
	}
	if l.readOnly {
		return fmt.Errorf("delete topic %q: %w", topic, ErrReadOnly)
	}
	entry, ok := l.registry[topic]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownTopic, topic)
	}
	if !entry.Deleting {
		if err := l.writeRegistry(map[string]*registryTopic{topic: {Spec: entry.Spec, Deleting: true}}); err != nil {
			return fmt.Errorf("delete topic %q: %w", topic, err)
		}
		gone := l.topics[topic]
		l.setTopic(topic, nil)
		defer l.topicsChanged.broadcast()
		for _, p := range gone.partitions {
			p.halt()
			p.syncMu.Lock()
			_ = p.release()
			p.syncMu.Unlock()
		}
	}
	if err := l.removeTopicNow(topic); err != nil {
		return fmt.Errorf("delete topic %q: %w", topic, err)
	}
	return l.Checkpoint()
}

func (l *Log) removeTopicNow(topic string) error {
	names, err := l.options.FS.List(l.dir)
	if err != nil {
		return err
	}
	return l.removeTopic(topic, names)
}

// removeTopic removes a topic's directories and then its entry. names is what the
// log's directory holds. The directories are renamed first, so that none is ever
// seen half empty.
func (l *Log) removeTopic(topic string, names []string) error {
	if err := l.removeObjects(topic, names); err != nil {
		return err
	}
	files := l.options.FS
	var aside []string
	for i := range l.registry[topic].Spec.Partitions {
		name := TopicPartition{Topic: topic, Partition: PartitionID(i)}.String()
		if !slices.Contains(names, name) {
			continue
		}
		from := path.Join(l.dir, name)
		to := from + deletedSuffix
		if err := cmp.Or(files.RemoveAll(to), files.Rename(from, to)); err != nil {
			return err
		}
		aside = append(aside, to)
	}
	if err := files.SyncDir(l.dir); err != nil {
		return err
	}
	for _, dir := range aside {
		if err := files.RemoveAll(dir); err != nil {
			return err
		}
	}
	return l.writeRegistry(map[string]*registryTopic{topic: nil})
}

// TopicsChanged returns a channel that is closed when a topic is made or deleted, or
// gains partitions, after the call.
func (l *Log) TopicsChanged() <-chan struct{} { return l.topicsChanged.wait() }

// Topics walks the topics by name.
func (l *Log) Topics() iter.Seq2[string, TopicSpec] {
	return func(yield func(string, TopicSpec) bool) {
		l.mu.RLock()
		topics := maps.Clone(l.topics)
		l.mu.RUnlock()
		for _, name := range slices.Sorted(maps.Keys(topics)) {
			if !yield(name, topics[name].spec) {
				return
			}
		}
	}
}

// Spec returns the settings of a topic.
func (l *Log) Spec(topic string) (TopicSpec, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t, ok := l.topics[topic]
	if !ok {
		return TopicSpec{}, false
	}
	return t.spec, true
}

// Partition returns an open partition, or ErrUnknownTopic.
func (l *Log) Partition(tp TopicPartition) (*Partition, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t, ok := l.topics[tp.Topic]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownTopic, tp.Topic)
	}
	if l.readOnly && (tp.Partition < 0 || int(tp.Partition) >= len(t.partitions) || t.partitions[tp.Partition] == nil) {
		return nil, fmt.Errorf("%w: %s has no directory %s", ErrUnknownTopic, l.dir, tp)
	}
	if tp.Partition < 0 || int(tp.Partition) >= len(t.partitions) {
		return nil, fmt.Errorf("%w: %q has partitions 0 to %d, not %d", ErrUnknownTopic, tp.Topic, len(t.partitions)-1, tp.Partition)
	}
	return t.partitions[tp.Partition], nil
}

// Partitions walks all partitions, by topic and number.
func (l *Log) Partitions() iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for _, p := range l.partitions() {
			if !yield(p) {
				return
			}
		}
	}
}

// partitions returns all partitions, by topic and number. The slice does not change.
func (l *Log) partitions() []*Partition {
	l.mu.RLock()
	all := l.all
	l.mu.RUnlock()
	if all != nil {
		return all
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = []*Partition{}
		for _, name := range slices.Sorted(maps.Keys(l.topics)) {
			for _, p := range l.topics[name].partitions {
				if p != nil {
					l.all = append(l.all, p)
				}
			}
		}
	}
	return l.all
}

// Checkpoint writes down up to where each partition is known durable, so that
// recovery scans from there, and where it starts. It costs nothing while neither
// moved, else four syncs for all partitions together. It does not sync data.
func (l *Log) Checkpoint() error { return l.checkpoint(nil) }

// checkpoint is Checkpoint with some partitions more. Those of which nothing is durable
// and nothing deleted are left out: 0 is what is assumed of a partition that the files
// do not know.
func (l *Log) checkpoint(more []*Partition) error {
	if l.readOnly {
		return nil
	}
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	recoveryPoints, starts := make(map[TopicPartition]Offset), make(map[TopicPartition]Offset)
	for _, all := range [][]*Partition{l.partitions(), more} {
		for _, p := range all {
			if durable, start := p.Durable(), p.Start(); durable > 0 || start > 0 {
				recoveryPoints[p.name], starts[p.name] = durable, start
			}
		}
	}
	// A start above the recovery point is harmless, a recovery point below an old
	// start is too.
	if err := l.writeOffsets(logStartFile, &l.logStarts, starts); err != nil {
		return err
	}
	return l.writeOffsets(recoveryPointFile, &l.recoveryPoints, recoveryPoints)
}

func (l *Log) writeOffsets(file string, written *string, offsets map[TopicPartition]Offset) error {
	b := encodeOffsets(offsets)
	if string(b) == *written {
		return nil
	}
	if err := replaceFile(l.options.FS, path.Join(l.dir, file), b); err != nil {
		*written = "" // whether it is there is not known
		return err
	}
	*written = string(b)
	return nil
}

// Close syncs, cuts segments to their ends and writes the proof of a clean stop.
// Partitions that failed are left out of it. Readers keep what they pinned. Close
// is safe to repeat and returns the first result.
func (l *Log) Close() error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.isClosed {
		return l.closeErr
	}
	l.isClosed = true
	close(l.stop)
	l.stopped.Wait()
	if l.readOnly {
		for p := range l.Partitions() {
			p.halt()
		}
		l.closeErr = l.releaseAll()
		return l.closeErr
	}
	var mu sync.Mutex
	stops := make(map[TopicPartition]cleanStop)
	var errs []error
	_ = inParallel(l.partitions(), func(p *Partition) error {
		stop, err := p.close()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		} else {
			stops[p.name] = stop
		}
		return nil // the others are closed all the same
	})
	err := l.Checkpoint()
	if err == nil {
		err = replaceFile(l.options.FS, path.Join(l.dir, cleanStopFile), encodeCleanStops(stops))
	}
	l.closeErr = errors.Join(errors.Join(errs...), err, l.lock.Close())
	return l.closeErr
}

// populate asks for the pages ahead of the active segment's end to be present, so
// that appends meet no page faults, unless the segment is small: its pages would be
// written to the disk too. Only the appender calls it.
func (l *Log) populate(s *segment) {
	if s.end.Load() < populateFrom || s.end.Load()+populateBytes/2 < s.populated || s.populated >= s.allocated || s.pin() != nil {
		return
	}
	s.populated = min(s.allocated, s.end.Load()+populateBytes)
	select {
	case l.populating <- s:
	default:
		s.unpin() // a hint, and somebody else is served first
	}
}

// populateLoop makes pages present, off the append path.
func (l *Log) populateLoop() {
	for {
		select {
		case <-l.stop:
			for {
				select {
				case s := <-l.populating:
					s.unpin()
				default:
					return
				}
			}
		case s := <-l.populating:
			end := s.end.Load()
			s.mapping.Populate(end, min(end+populateBytes, s.present.Load()))
			s.unpin()
		}
	}
}
