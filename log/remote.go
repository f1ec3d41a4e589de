package log

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A partition of a topic with Remote set is kept in two places: sealed segments are
// copied to the object store, and go from the log's directory earlier than from there.
//
//	sealed ──▶ object written ──▶ listed in the manifest ──▶ local files gone
//	                                └──▶ not listed any more ──▶ object gone
//
// Each step is durable before the next one begins. An object that is not listed is
// what a crash left behind between two of them; it is found by its prefix and removed.

// RemoteStats tells what of a partition is in the object store.
type RemoteStats struct {
	Segments   int
	Bytes      int64  // of records, their indexes left out
	End        Offset // all from Start up to here is there
	LocalStart Offset // what is below is there alone

	// Failed is why the last Offload failed, nil after one that did not.
	Failed error
}

// Remote returns what of the partition is in the object store.
func (p *Partition) Remote() RemoteStats {
	m := p.remote.Load()
	stats := RemoteStats{Segments: len(m.segments), End: m.end(), LocalStart: (*p.segments.Load())[0].base}
	for i := range m.segments {
		stats.Bytes += int64(m.segments[i].data.size)
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	stats.Failed = p.remoteErr
	return stats
}

// remoteLoop keeps the object store in step, from time to time.
func (l *Log) remoteLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.stopped.Go(func() { // ends with the log, and so does what is under way
		<-l.stop
		cancel()
	})
	again := time.NewTicker(l.options.RemoteInterval)
	defer again.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-again.C:
		}
		for p := range l.Partitions() {
			if !p.spec().Remote && p.remote.Load().id == 0 {
				continue
			}
			err := p.Offload(ctx)
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				l.options.Logger.Warn("the object store is behind; it is tried again", "partition", p.name.String(), "error", err)
			}
		}
	}
}

// Offload copies the sealed segments that are on disk to the object store, drops those
// from the directory that the topic's LocalRetentionAge and LocalRetentionBytes do not
// keep, and removes objects that are not wanted any more. It is done in the background
// every Options.RemoteInterval. When ctx ends, what is done is done.
func (p *Partition) Offload(ctx context.Context) error {
	if p.options.Remote == nil {
		return fmt.Errorf("log: offload %s: set Options.Remote", p.name)
	}
	// One at a time, and closing waits for it.
	p.compactMu.Lock()
	defer p.compactMu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	err := p.offload(ctx)
	if ctx.Err() == nil {
		p.syncMu.Lock()
		p.remoteErr = err
		p.syncMu.Unlock()
	}
	return err
}

func (p *Partition) offload(ctx context.Context) error {
	for {
		s, err := p.nextToOffload()
		if err == nil && s != nil {
			err = p.upload(ctx, s)
			s.unpin()
		}
		if err != nil {
			return p.remoteError("offload", err)
		}
		if s == nil {
			break
		}
	}
	if err := p.dropLocal(); err != nil {
		return p.remoteError("drop local segments", err)
	}
	if err := p.sweep(ctx); err != nil {
		return p.remoteError("remove objects", err)
	}
	return nil
}

func (p *Partition) remoteError(doing string, err error) error {
	if p.closed.Load() {
		return ErrClosed
	}
	return fmt.Errorf("%s of %s: %w", doing, p.name, err)
}

// nextToOffload pins the first sealed segment that the object store does not have;
// nil when it has all.
func (p *Partition) nextToOffload() (*segment, error) {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	if !p.spec().Remote {
		return nil, nil
	}
	m, segments := p.remote.Load(), *p.segments.Load()
	if m.id == 0 {
		// Before there is an object, so that all of them can be found.
		if err := p.saveManifest(manifest{id: 1 + rand.Uint64N(1<<63)}); err != nil {
			return nil, err
		}
		m = p.remote.Load()
	}
	from := segments[0].base
	if len(m.segments) > 0 {
		from = m.end()
	}
	for _, s := range segments[:len(segments)-1] {
		if s.base < from {
			continue
		}
		if s.writable.Load() || s.next > p.HighWatermark() {
			return nil, nil
		}
		return s, s.pin()
	}
	return nil, nil
}

// upload copies a segment and lists it.
func (p *Partition) upload(ctx context.Context, s *segment) error {
	generation, m := p.generation.Load(), p.remote.Load()
	made, content, err := s.describe(p.aborted.Load().between(s.base, s.next))
	if err != nil {
		return err
	}
	name := m.object(p.name, &made)
	if err := p.options.Remote.Put(ctx, name, io.NewSectionReader(content, 0, content.size()), content.size()); err != nil {
		return fmt.Errorf("%w: put %s: %w", ErrRemote, name, err)
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	if p.generation.Load() != generation || !slices.Contains(*p.segments.Load(), s) {
		p.unlisted = append(p.unlisted, name) // cut off or deleted meanwhile
		return nil
	}
	next := *p.remote.Load()
	if len(next.segments) > 0 && next.end() != s.base {
		next, _ = next.without(p.name, func(*remoteSegment) bool { return true }) // all of it was deleted
	}
	next.segments = append(slices.Clip(next.segments), made)
	return p.saveManifest(next)
}

// describe checks every batch of a sealed segment, and returns what the manifest says
// of it and what its object holds. The caller holds a pin.
func (s *segment) describe(aborted abortedTransactions) (made remoteSegment, content objectContent, err error) {
	offsets, times, err := s.loadIndexes()
	if err != nil {
		return made, content, err
	}
	// What is damaged here must not take the place of what is whole elsewhere.
	if err := s.eachBatch(s.base, func(*Batch) error { return nil }); err != nil {
		return made, content, err
	}
	data := s.data[:s.end.Load()]
	content = objectContent{data, encodeOffsetIndex(offsets), encodeTimeIndex(times)}
	made = remoteSegment{
		base: s.base, next: s.next, index: sumOf(content[1]), timeIndex: sumOf(content[2]),
		maxTime: s.maxTime.Load(), appended: s.appended.Load(), gaps: s.gaps, aborted: slices.Clone(aborted),
	}
	err = vfs.Guard(func() error {
		made.data = fileSum{size: uint32(len(data)), sum: crc32.Checksum(data, castagnoli)}
		return nil
	})
	return made, content, err
}

// objectContent is the parts of an object, one after the other.
type objectContent [3][]byte

func (c objectContent) size() (n int64) {
	for _, part := range c {
		n += int64(len(part))
	}
	return n
}

func (c objectContent) ReadAt(p []byte, off int64) (n int, err error) {
	err = vfs.Guard(func() error {
		for _, part := range c {
			if off >= int64(len(part)) {
				off -= int64(len(part))
				continue
			}
			n += copy(p[n:], part[off:])
			off = 0
		}
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// dropLocal drops the local files of segments that the object store has and the
// topic's settings do not keep here. The log start stays.
func (p *Partition) dropLocal() error {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	spec, m, now := *p.spec(), p.remote.Load(), p.options.Now()
	segments, n := *p.segments.Load(), 0
	bytes, _ := p.Size()
	for ; n+1 < len(segments) && segments[n].next <= m.end(); n++ {
		size := segments[n].end.Load()
		tooMuch := spec.LocalRetentionBytes > 0 && bytes-size >= spec.LocalRetentionBytes
		if !tooMuch && !segments[n].expired(spec.LocalRetentionAge, now) {
			break
		}
		bytes -= size
	}
	if n == 0 {
		return nil
	}
	if err := p.ensureSnapshot(segments[n-1], segments[n].base); err != nil {
		return err
	}
	next := *m
	next.localStart = segments[n].base
	if err := p.saveManifest(next); err != nil {
		return err
	}
	p.mu.Lock()
	kept := slices.Clone((*p.segments.Load())[n:])
	p.segments.Store(&kept)
	p.mu.Unlock()
	return p.removeDropped(segments[:n])
}

// forgetRemote takes segments out of the manifest. Their objects are removed by the
// next Offload. The caller holds syncMu.
func (p *Partition) forgetRemote(gone func(*remoteSegment) bool) error {
	left, objects := p.remote.Load().without(p.name, gone)
	if len(objects) == 0 {
		return nil
	}
	if err := p.saveManifest(left); err != nil {
		return err
	}
	p.unlisted = append(p.unlisted, objects...)
	return nil
}

// sweep removes objects that are not listed: those that were taken out of the
// manifest and, once after the log was opened, those that a crash left.
func (p *Partition) sweep(ctx context.Context) error {
	p.syncMu.Lock()
	m, gone, swept := p.remote.Load(), p.unlisted, p.swept
	p.syncMu.Unlock()
	if m.id == 0 {
		return nil
	}
	listed := make(map[string]bool, len(m.segments))
	for i := range m.segments {
		listed[m.object(p.name, &m.segments[i])] = true
	}
	if !swept {
		names, err := p.options.Remote.List(ctx, m.prefix(p.name))
		if err != nil {
			return fmt.Errorf("%w: list %s: %w", ErrRemote, m.prefix(p.name), err)
		}
		gone = names
	}
	for _, name := range gone {
		if listed[name] {
			continue
		}
		if err := p.options.Remote.Delete(ctx, name); err != nil {
			return fmt.Errorf("%w: delete %s: %w", ErrRemote, name, err)
		}
	}
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	p.swept = true
	p.unlisted = slices.DeleteFunc(p.unlisted, func(name string) bool { return slices.Contains(gone, name) })
	return nil
}

// removeObjects removes all that the object store has of a topic's partitions, whose
// directories are among names.
func (l *Log) removeObjects(topic string, names []string) error {
	for i := range l.registry[topic].Spec.Partitions {
		tp := TopicPartition{Topic: topic, Partition: PartitionID(i)}
		if !slices.Contains(names, tp.String()) {
			continue
		}
		p := &Partition{dir: path.Join(l.dir, tp.String()), options: l.options}
		m, err := p.loadManifest()
		if err != nil {
			return err
		}
		if m.id == 0 {
			continue
		}
		if l.options.Remote == nil {
			return fmt.Errorf("%s has objects in an object store: set Options.Remote to it, so that they can be deleted", tp)
		}
		objects, err := l.options.Remote.List(context.Background(), m.prefix(tp))
		for _, name := range objects {
			err = errors.Join(err, l.options.Remote.Delete(context.Background(), name))
		}
		if err != nil {
			return fmt.Errorf("%w: delete the objects of %s: %w", ErrRemote, tp, err)
		}
	}
	return nil
}
