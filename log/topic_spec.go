package log

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// TopicSpec is what a topic is created with.
type TopicSpec struct {
	// Partitions is their number, at least 1.
	Partitions int

	// Sync says when appended data is made durable.
	Sync Sync

	// SegmentBytes is the size at which a segment is sealed. Zero means
	// Options.SegmentBytes.
	SegmentBytes int64

	// RetentionAge is how long records are kept, by their own time; one that is ahead
	// of the clock counts as that of its appending. Whole segments go, so that records
	// stay as long as a younger one in their segment. Zero means for ever.
	RetentionAge time.Duration

	// RetentionBytes is how much of a partition is kept, at least: its oldest segment
	// goes once the others have as much. Zero means everything.
	RetentionBytes int64

	// Compact asks for the newest record of each key only: older ones are removed
	// in the background. Every record needs a key then; one without a value, a
	// tombstone, deletes its key.
	Compact bool

	// TombstoneRetention is how long a tombstone of a compacted topic stays, and
	// the marker of a transaction of which nothing else is left, counted from
	// the first compaction that meets it. A reader that is slower may miss the
	// deletion. Zero means 24 hours; what is less than a millisecond means none.
	TombstoneRetention time.Duration

	// MinCompactionLag is how long a record of a compacted topic stays at least,
	// whatever came after it. It is counted from the last append to its segment.
	// Zero means no time.
	MinCompactionLag time.Duration

	// MaxCompactionLag is how long a record of a compacted topic may wait to be
	// compacted, however little there is to remove: its segment is sealed then.
	// It is counted from the first record of the segment, or from when the log was
	// opened where that was later. Zero means that DirtyRatio alone decides.
	MaxCompactionLag time.Duration

	// DirtyRatio is the part of what can be compacted, per mille of its bytes,
	// that has to be new since the last compaction for another one to begin. Zero
	// means 500: a topic takes up to twice the space of its newest records, its
	// active segment apart.
	DirtyRatio int

	// Compression is how batches are compressed that are built for the topic. Zero
	// means not at all. A topic may hold batches compressed in any way.
	Compression Compression

	// CompressionLevel trades time for size, in the codec's own numbers. Zero means
	// its default.
	CompressionLevel int

	// MaxRecordBytes is the most that key, value and headers of one record may have
	// together. Zero means what a batch holds, see Options.MaxBatchBytes.
	MaxRecordBytes int64

	// AppendTime gives every record the time at which the log takes it, in place of
	// its own.
	AppendTime bool

	// Delayed has readers look at the times that records carry in their headers: not
	// before when they are to be read, and when they expire. The log keeps them
	// whatever their times.
	Delayed bool

	// TimeToLive is how long after their time records expire that do not say it
	// themselves, and has readers look at the times in headers too. Zero means never.
	TimeToLive time.Duration

	// Remote has sealed segments copied to Options.Remote, the object store. The topic
	// cannot have Compact.
	Remote bool

	// LocalRetentionAge is how long the copied segments of a topic with Remote stay in
	// the log's directory, too; age is what RetentionAge takes it for. Zero means as
	// long as in the object store.
	LocalRetentionAge time.Duration

	// LocalRetentionBytes is how much of a partition with Remote is kept in the log's
	// directory, at least: its oldest segment goes from there once it is copied and
	// the others have as much. Zero means as much as in the object store.
	LocalRetentionBytes int64
}

const (
	defaultTombstoneRetention = 24 * time.Hour
	defaultDirtyRatio         = 500
)

// setting is a field of a TopicSpec as the registry keeps it. A field that is zero,
// and so has its default, takes no place there.
type setting struct {
	id       uint16 // in the registry: never reused for another meaning
	name     string // of the field
	get      func(*TopicSpec) int64
	set      func(*TopicSpec, int64)
	min, max int64
	print    func(int64) any // nil for a plain number
}

// settings lists all fields but Partitions, by id.
var settings = []setting{
	{id: 1, name: "Sync", min: int64(SyncAlways), max: math.MaxInt64,
		get: func(s *TopicSpec) int64 { return int64(s.Sync) }, set: func(s *TopicSpec, v int64) { s.Sync = Sync(v) },
		print: func(v int64) any { return Sync(v) }},
	{id: 2, name: "SegmentBytes", max: math.MaxInt32,
		get: func(s *TopicSpec) int64 { return s.SegmentBytes }, set: func(s *TopicSpec, v int64) { s.SegmentBytes = v }},
	{id: 3, name: "Compact", max: 1,
		get: func(s *TopicSpec) int64 { return boolSetting(s.Compact) }, set: func(s *TopicSpec, v int64) { s.Compact = v != 0 },
		print: printBool},
	{id: 6, name: "TombstoneRetention", max: math.MaxInt64, print: printDuration,
		get: func(s *TopicSpec) int64 { return int64(s.TombstoneRetention) },
		set: func(s *TopicSpec, v int64) { s.TombstoneRetention = time.Duration(v) }},
	{id: 7, name: "MinCompactionLag", max: math.MaxInt64, print: printDuration,
		get: func(s *TopicSpec) int64 { return int64(s.MinCompactionLag) },
		set: func(s *TopicSpec, v int64) { s.MinCompactionLag = time.Duration(v) }},
	{id: 8, name: "MaxCompactionLag", max: math.MaxInt64, print: printDuration,
		get: func(s *TopicSpec) int64 { return int64(s.MaxCompactionLag) },
		set: func(s *TopicSpec, v int64) { s.MaxCompactionLag = time.Duration(v) }},
	{id: 9, name: "DirtyRatio", max: 1000,
		get: func(s *TopicSpec) int64 { return int64(s.DirtyRatio) }, set: func(s *TopicSpec, v int64) { s.DirtyRatio = int(v) }},
	{id: 4, name: "RetentionAge", max: math.MaxInt64,
		get: func(s *TopicSpec) int64 { return int64(s.RetentionAge) }, set: func(s *TopicSpec, v int64) { s.RetentionAge = time.Duration(v) },
		print: func(v int64) any { return time.Duration(v) }},
	{id: 5, name: "RetentionBytes", max: math.MaxInt64,
		get: func(s *TopicSpec) int64 { return s.RetentionBytes }, set: func(s *TopicSpec, v int64) { s.RetentionBytes = v }},
	{id: 10, name: "Compression", max: int64(Zstd),
		get: func(s *TopicSpec) int64 { return int64(s.Compression.orNone()) }, set: func(s *TopicSpec, v int64) { s.Compression = Compression(v) },
		print: func(v int64) any { return Compression(v) }},
	{id: 11, name: "CompressionLevel", max: int64(slices.Max(maxLevel[:])),
		get: func(s *TopicSpec) int64 { return int64(s.CompressionLevel) }, set: func(s *TopicSpec, v int64) { s.CompressionLevel = int(v) }},
	{id: 12, name: "MaxRecordBytes", max: maxRecordBytes,
		get: func(s *TopicSpec) int64 { return s.MaxRecordBytes }, set: func(s *TopicSpec, v int64) { s.MaxRecordBytes = v }},
	{id: 13, name: "AppendTime", max: 1,
		get: func(s *TopicSpec) int64 { return boolSetting(s.AppendTime) }, set: func(s *TopicSpec, v int64) { s.AppendTime = v != 0 },
		print: printBool},
	{id: 14, name: "Delayed", max: 1,
		get: func(s *TopicSpec) int64 { return boolSetting(s.Delayed) }, set: func(s *TopicSpec, v int64) { s.Delayed = v != 0 },
		print: printBool},
	{id: 15, name: "TimeToLive", max: math.MaxInt64,
		get: func(s *TopicSpec) int64 { return int64(s.TimeToLive) }, set: func(s *TopicSpec, v int64) { s.TimeToLive = time.Duration(v) },
		print: func(v int64) any { return time.Duration(v) }},
	{id: 16, name: "Remote", max: 1, print: printBool,
		get: func(s *TopicSpec) int64 { return boolSetting(s.Remote) }, set: func(s *TopicSpec, v int64) { s.Remote = v != 0 }},
	{id: 17, name: "LocalRetentionAge", max: math.MaxInt64, print: printDuration,
		get: func(s *TopicSpec) int64 { return int64(s.LocalRetentionAge) },
		set: func(s *TopicSpec, v int64) { s.LocalRetentionAge = time.Duration(v) }},
	{id: 18, name: "LocalRetentionBytes", max: math.MaxInt64,
		get: func(s *TopicSpec) int64 { return s.LocalRetentionBytes }, set: func(s *TopicSpec, v int64) { s.LocalRetentionBytes = v }},
}

func boolSetting(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func printBool(v int64) any { return v != 0 }

func printDuration(v int64) any { return time.Duration(v) }

// text is a value of the setting for people.
func (f *setting) text(v int64) string {
	if f.print == nil {
		return fmt.Sprint(v)
	}
	return fmt.Sprint(f.print(v))
}

func (s TopicSpec) validate() error {
	switch {
	case s.Partitions < 1:
		return fmt.Errorf("log: TopicSpec.Partitions is %d, at least 1 is needed", s.Partitions)
	case s.Partitions > math.MaxInt32:
		return fmt.Errorf("log: TopicSpec.Partitions is %d, at most %d are possible", s.Partitions, math.MaxInt32)
	}
	for i := range settings {
		f := &settings[i]
		if v := f.get(&s); v < f.min || v > f.max {
			return fmt.Errorf("log: TopicSpec.%s is %s, allowed is %s to %s", f.name, f.text(v), f.text(f.min), f.text(f.max))
		}
	}
	if s.MaxCompactionLag > 0 && s.MinCompactionLag > s.MaxCompactionLag {
		return fmt.Errorf("log: TopicSpec.MinCompactionLag is %s, more than MaxCompactionLag, %s", s.MinCompactionLag, s.MaxCompactionLag)
	}
	if s.Remote && s.Compact {
		return errors.New("log: TopicSpec.Remote and TopicSpec.Compact are both set: what is in the object store is not compacted")
	}
	return s.Compression.CheckLevel(s.CompressionLevel)
}

// differences names the fields in which s and asked differ, with both values.
func (s TopicSpec) differences(asked TopicSpec) (diffs []string) {
	if s.Partitions != asked.Partitions {
		diffs = append(diffs, fmt.Sprintf("Partitions is %d, asked for is %d", s.Partitions, asked.Partitions))
	}
	for i := range settings {
		f := &settings[i]
		if has, wants := f.get(&s), f.get(&asked); has != wants {
			diffs = append(diffs, fmt.Sprintf("%s is %s, asked for is %s", f.name, f.text(has), f.text(wants)))
		}
	}
	return diffs
}
