package log

import "time"

// Retention drops whole segments, the oldest first, that are no longer wanted: by
// size, whenever a segment is rolled, and by time, at every check. It never goes past
// the last stable offset, so neither past the high watermark nor an open transaction.
// It waits for nobody who has yet to read: one that stands still would fill the disk.

// Deleted counts what was dropped from a partition since it was opened.
type Deleted struct {
	Segments int64 // files
	Bytes    int64 // of whole segments
	Records  int64 // offsets that the log start passed
}

// Deleted returns what retention and DeleteBefore have dropped since the partition
// was opened.
func (p *Partition) Deleted() Deleted {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	return p.deleted
}

// retentionLoop applies the settings of all topics from time to time.
func (l *Log) retentionLoop() {
	again := time.NewTicker(l.options.RetentionCheckInterval)
	defer again.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-again.C:
		}
		for p := range l.Partitions() {
			select {
			case <-l.stop:
				return
			default:
			}
			p.dropSparesBefore(time.Now().Add(-l.options.RetentionCheckInterval))
			p.retain()
			p.tellDeleted()
		}
	}
}

// retain drops the segments that the topic's settings no longer keep.
func (p *Partition) retain() {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	spec := *p.spec()
	if p.usable() != nil || spec.RetentionAge == 0 && spec.RetentionBytes == 0 {
		return
	}
	now := p.options.Now()
	err := p.rollExpired(spec, now)
	if to := p.firstWanted(spec, now); err == nil && to > p.Start() {
		err = p.moveStart(to)
	}
	if err != nil {
		p.options.Logger.Warn("retention will be tried again", "partition", p.name.String(), "error", err)
	}
}

// rollExpired seals the active segment when all of it has expired, so that it can go.
func (p *Partition) rollExpired(spec TopicSpec, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	active := p.active()
	if active.end.Load() == 0 || !active.expired(spec.RetentionAge, now) {
		return nil
	}
	if err := p.usable(); err != nil {
		return err
	}
	_, err := p.rollLocked(Offset(p.end.Load()), now)
	return err
}

// expired tells whether all records of a segment are older than age. A record's time
// says how old it is, but it is no younger than its segment's last append: a time in
// the far future keeps nothing for ever.
func (s *segment) expired(age time.Duration, now time.Time) bool {
	return isExpired(s.appended.Load(), s.maxTime.Load(), age, now)
}

// isExpired is expired for the time of a segment's last append and its greatest time.
func isExpired(appended, maxTime int64, age time.Duration, now time.Time) bool {
	if age == 0 {
		return false
	}
	newest := appended
	if maxTime != noTime {
		newest = min(newest, maxTime)
	}
	return newest < now.Add(-age).UnixMilli()
}

// firstWanted returns the base of the first segment that the settings keep. The caller
// holds syncMu.
func (p *Partition) firstWanted(spec TopicSpec, now time.Time) Offset {
	limit := p.LastStable()
	bytes, _ := p.Size()
	segments, n := *p.segments.Load(), 0
	unwanted := func(size int64, expired bool) bool {
		return expired || spec.RetentionBytes > 0 && bytes-size >= spec.RetentionBytes
	}
	away := p.remote.Load().below(segments[0].base)
	for i := range away {
		bytes += int64(away[i].data.size)
	}
	for i := range away {
		s := &away[i]
		size := int64(s.data.size)
		if s.next > limit || !unwanted(size, isExpired(s.appended, s.maxTime, spec.RetentionAge, now)) {
			return s.base
		}
		bytes -= size
	}
	for ; n+1 < len(segments) && segments[n+1].base <= limit; n++ {
		size := segments[n].end.Load()
		if !unwanted(size, segments[n].expired(spec.RetentionAge, now)) {
			break
		}
		bytes -= size
	}
	return segments[n].base
}

// tellDeleted logs what was dropped since the last time: at the pace of the checks,
// since a partition that is written fast drops a segment many times a second.
func (p *Partition) tellDeleted() {
	p.syncMu.Lock()
	defer p.syncMu.Unlock()
	if p.deleted == p.told {
		return
	}
	p.options.Logger.Info("old records were dropped", "partition", p.name.String(), "start", int64(p.Start()),
		"records", p.deleted.Records-p.told.Records, "bytes", p.deleted.Bytes-p.told.Bytes,
		"segments", p.deleted.Segments-p.told.Segments)
	p.told = p.deleted
}
