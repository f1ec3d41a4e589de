package topic

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/thalweg/thalweg/log"
)

// settings is what a Topic is declared with. They know nothing of its types, so that they
// are compiled once and not for each. Nothing changes settings that a Topic has: the
// methods return changed copies. Nil are those of the zero Topic.
type settings struct {
	name        string
	key         any // codec.Codec[K]; nil means the default of K
	value       any // codec.Codec[V]; nil means the default of V
	eventTime   any // func(V) time.Time, or nil
	partitionBy any // func(k K, n int) int, or nil
	spec        log.TopicSpec
	uncommitted bool
	onExpired   func(partition int, offset int64)
	faults      error // mistakes in the calls so far, joined

	// declared is the same in two topics if records of one are encoded and placed as
	// those of the other.
	declared *declaration
}

// declaration has an address, and nothing else that counts.
type declaration struct{ _ byte }

// copy returns settings to change.
func (s *settings) copy() *settings {
	c := *s.get()
	return &c
}

// get returns settings to read.
func (s *settings) get() *settings {
	if s == nil {
		return new(settings)
	}
	return s
}

func (s *settings) keyCodec(c any, of reflect.Type) *settings {
	if c == nil {
		return s.fault("KeyCodec(nil): give a codec, or leave the call out for the default of %s", of)
	}
	s = s.copy()
	s.key, s.declared = c, new(declaration)
	return s
}

func (s *settings) valueCodec(c any, of reflect.Type) *settings {
	if c == nil {
		return s.fault("ValueCodec(nil): give a codec, or leave the call out for the default of %s", of)
	}
	s = s.copy()
	s.value, s.declared = c, new(declaration)
	return s
}

func (s *settings) withEventTime(f any, none bool) *settings {
	if none {
		return s.fault("EventTime(nil): give a function, or leave the call out for the time of sending")
	}
	s = s.copy()
	s.eventTime, s.declared = f, new(declaration)
	return s
}

func (s *settings) partitions(n int) *settings {
	if n < 1 || n > MaxPartitions {
		return s.fault("Partitions(%d): give a number between 1 and %d", n, MaxPartitions)
	}
	s = s.copy()
	s.spec.Partitions = n
	return s
}

func (s *settings) sync(how log.Sync) *settings {
	if how < 0 && how != log.SyncAlways {
		return s.fault("Sync(%d): give log.SyncAlways, log.SyncByOS or log.SyncEvery of a positive duration", how)
	}
	s = s.copy()
	s.spec.Sync = how
	return s
}

func (s *settings) segmentBytes(n int64) *settings {
	if n < 1 || n > math.MaxInt32 {
		return s.fault("SegmentBytes(%d): give a size between 1 and %d, or leave the call out for the log's own", n, math.MaxInt32)
	}
	s = s.copy()
	s.spec.SegmentBytes = n
	return s
}

func (s *settings) compact() *settings {
	s = s.copy()
	s.spec.Compact = true
	return s
}

func (s *settings) tombstoneRetention(d time.Duration) *settings {
	if d <= 0 {
		return s.fault("TombstoneRetention(%v): give a positive duration, or leave the call out for 24 hours", d)
	}
	s = s.copy()
	s.spec.TombstoneRetention = d
	return s
}

func (s *settings) minCompactionLag(d time.Duration) *settings {
	if d < 0 {
		return s.fault("MinCompactionLag(%v): give a duration, or leave the call out", d)
	}
	s = s.copy()
	s.spec.MinCompactionLag = d
	return s
}

func (s *settings) maxCompactionLag(d time.Duration) *settings {
	if d <= 0 {
		return s.fault("MaxCompactionLag(%v): give a positive duration, or leave the call out for no bound", d)
	}
	s = s.copy()
	s.spec.MaxCompactionLag = d
	return s
}

func (s *settings) dirtyRatio(perMille int) *settings {
	if perMille < 1 || perMille > 1000 {
		return s.fault("DirtyRatio(%d): give 1 to 1000, or leave the call out for 500", perMille)
	}
	s = s.copy()
	s.spec.DirtyRatio = perMille
	return s
}

func (s *settings) remote() *settings {
	s = s.copy()
	s.spec.Remote = true
	return s
}

func (s *settings) retainLocally(d time.Duration) *settings {
	if d <= 0 {
		return s.fault("RetainLocally(%v): give a positive duration, or leave the call out", d)
	}
	s = s.copy()
	s.spec.LocalRetentionAge = d
	return s
}

func (s *settings) retainLocallyBytes(n int64) *settings {
	if n <= 0 {
		return s.fault("RetainLocallyBytes(%d): give a positive size, or leave the call out", n)
	}
	s = s.copy()
	s.spec.LocalRetentionBytes = n
	return s
}

func (s *settings) compress(c log.Compression) *settings {
	if err := c.CheckLevel(0); err != nil {
		return s.fault("Compress(%d): %w", c, err)
	}
	s = s.copy()
	s.spec.Compression = max(c, 0)
	return s
}

func (s *settings) compressionLevel(n int) *settings {
	if n < 1 {
		return s.fault("CompressionLevel(%d): give at least 1, or leave the call out for the codec's default", n)
	}
	s = s.copy()
	s.spec.CompressionLevel = n
	return s
}

func (s *settings) maxRecordBytes(n int64) *settings {
	if n < 1 || n > maxRecordBytes {
		return s.fault("MaxRecordBytes(%d): give a size between 1 and %d, or leave the call out", n, maxRecordBytes)
	}
	s = s.copy()
	s.spec.MaxRecordBytes = n
	return s
}

func (s *settings) appendTime() *settings {
	s = s.copy()
	s.spec.AppendTime = true
	return s
}

func (s *settings) retain(d time.Duration) *settings {
	if d <= 0 {
		return s.fault("Retain(%v): give a positive duration, or leave the call out to keep records for ever", d)
	}
	s = s.copy()
	s.spec.RetentionAge = d
	return s
}

func (s *settings) retainBytes(n int64) *settings {
	if n < 1 {
		return s.fault("RetainBytes(%d): give a positive size, or leave the call out to keep everything", n)
	}
	s = s.copy()
	s.spec.RetentionBytes = n
	return s
}

func (s *settings) delayed() *settings {
	s = s.copy()
	s.spec.Delayed = true
	return s
}

func (s *settings) timeToLive(d time.Duration) *settings {
	if d < time.Millisecond {
		return s.fault("TimeToLive(%v): give at least 1 ms, or leave the call out", d)
	}
	s = s.copy()
	s.spec.TimeToLive = d
	return s
}

func (s *settings) withOnExpired(f func(partition int, offset int64)) *settings {
	s = s.copy()
	s.onExpired = f
	return s
}

func (s *settings) withUncommitted() *settings {
	s = s.copy()
	s.uncommitted = true
	return s
}

func (s *settings) withPartitionBy(f any, none bool) *settings {
	if none {
		return s.fault("PartitionBy(nil): give a function, or leave the call out to partition by the hash of the key")
	}
	s = s.copy()
	s.partitionBy, s.declared = f, new(declaration)
	return s
}

// err returns every mistake, joined, or nil.
func (s *settings) err() error { return errors.Join(checkName(s.name), s.faults, s.together()) }

// together returns what is wrong with settings that are right each for itself.
func (s *settings) together() error {
	if s.spec.Remote && s.spec.Compact {
		return fmt.Errorf("topic %q: Remote() and Compact(): what is in the object store is not compacted; choose one of them", s.name)
	}
	if least, most := s.spec.MinCompactionLag, s.spec.MaxCompactionLag; most > 0 && least > most {
		return fmt.Errorf("topic %q: MinCompactionLag(%v) is more than MaxCompactionLag(%v)", s.name, least, most)
	}
	if err := s.spec.Compression.CheckLevel(s.spec.CompressionLevel); err != nil {
		return fmt.Errorf("topic %q: CompressionLevel(%d): %w", s.name, s.spec.CompressionLevel, err)
	}
	return nil
}

func (s *settings) fault(format string, args ...any) *settings {
	s = s.copy()
	s.faults = errors.Join(s.faults, fmt.Errorf("topic %q: "+format, append([]any{s.name}, args...)...))
	return s
}

// checkName refuses what the log does, and the names kept for topics of our own.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty; name the topic with topic.New", log.ErrInvalidName)
	}
	if strings.HasPrefix(name, "__") {
		return fmt.Errorf("%w: %q begins with \"__\", which is reserved; use another", log.ErrInvalidName, name)
	}
	return log.ValidateName(name)
}
