package log

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
)

// Options configures Open. The zero value suits production.
type Options struct {
	FS                 vfs.FS           // nil means the operating system's
	Now                func() time.Time // nil means time.Now
	SegmentBytes       int64            // zero means 64 MiB
	SegmentAge         time.Duration    // zero means 7 days
	IndexIntervalBytes int64            // zero means 4 KiB
	MaxBatchBytes      int              // zero means 16 MiB
	ProducerExpiry     time.Duration    // zero means 7 days
	Logger             *slog.Logger
}

// Owners tells who owns a producer id. The metadata log implements it.
type Owners interface {
	// Owner returns the first id of the block that holds id and whether its
	// owner is over; known is false while no block known holds it. It is called
	// with a partition locked and must not block or call back.
	Owner(id ProducerID) (first ProducerID, over, known bool)
}

// TopicSpec is what a topic is created with.
type TopicSpec struct {
	Partitions   int
	Sync         Sync
	SegmentBytes int64 // zero means Options.SegmentBytes
	Compact      bool  // recorded; compaction itself comes later
}

// Log is all partitions below one directory.
type Log struct{}

// Open opens dir, creating it, and recovers every partition.
func Open(dir string, o Options) (*Log, error) { panic("todo") }

// SetOwners installs the authority on producer ids. Without one each id is its own owner, never over.
func (l *Log) SetOwners(o Owners) { panic("todo") }

// Create makes a topic. One that exists with the same settings is no error; with others it is ErrTopicExists (naming the fields).
func (l *Log) Create(topic string, spec TopicSpec) error { panic("todo") }
func (l *Log) Delete(topic string) error                 { panic("todo") }

// Topics walks the topics by name.
func (l *Log) Topics() iter.Seq2[string, TopicSpec] { panic("todo") }

// Spec returns the settings of a topic.
func (l *Log) Spec(topic string) (TopicSpec, bool) { panic("todo") }

// Partition returns an open partition, or ErrUnknownTopic.
func (l *Log) Partition(tp TopicPartition) (*Partition, error) { panic("todo") }

// Partitions walks all partitions.
func (l *Log) Partitions() iter.Seq[*Partition] { panic("todo") }

// Close syncs, cuts segments to their ends and writes the proof of a clean stop.
func (l *Log) Close() error { panic("todo") }

// Partition is one append-only sequence of records.
type Partition struct{}

func (p *Partition) Name() TopicPartition { panic("todo") }

// AppendResult tells where a batch went.
type AppendResult struct {
	Base, Last Offset
	End        Position // the position right after the batch
	Duplicate  bool     // an exact repetition: Base and Last are those of the first time
}

// Write appends one encoded batch, stamping base offset and leader epoch into the
// log's copy, and returns without waiting for the sync policy. The batch stays
// the caller's.
func (p *Partition) Write(batch []byte) (AppendResult, error) { panic("todo") }

// Acked waits until all below end is below the high watermark and as durable as
// the topic's sync policy demands. Under SyncByOS it returns at once.
func (p *Partition) Acked(ctx context.Context, end Offset) error { panic("todo") }

// Append is Write followed by Acked. When ctx ends first the batch is in the log
// all the same and may still become durable.
func (p *Partition) Append(ctx context.Context, batch []byte) (AppendResult, error) { panic("todo") }

// AppendRecords encodes records into one batch without producer id and appends it.
func (p *Partition) AppendRecords(ctx context.Context, records ...Record) (AppendResult, error) {
	panic("todo")
}

// EndTransaction writes the marker that commits or aborts id's transaction. An end
// that repeats the same verdict, and one of an id that wrote nothing here, succeed
// and write nothing; the opposite verdict is an error.
func (p *Partition) EndTransaction(id ProducerID, commit bool) (Position, error) { panic("todo") }

// OpenTransaction is a transaction without a marker.
type OpenTransaction struct {
	ID    ProducerID
	First Offset
	Since time.Time
}

// OpenTransactions returns those of this partition by first offset.
func (p *Partition) OpenTransactions() []OpenTransaction { panic("todo") }

func (p *Partition) Start() Offset         { panic("todo") }
func (p *Partition) End() Position         { panic("todo") }
func (p *Partition) HighWatermark() Offset { panic("todo") }
func (p *Partition) LastStable() Offset    { panic("todo") }

// Durable is the offset below which all is synced.
func (p *Partition) Durable() Offset { panic("todo") }

// Sync makes all appended so far durable.
func (p *Partition) Sync(ctx context.Context) error { panic("todo") }

// Contains tells whether pos is a position of this very log: within start and
// end, and the record before it was written in pos.Epoch.
func (p *Partition) Contains(pos Position) bool { panic("todo") }

// PositionAt returns off with the leader epoch of the record before it.
func (p *Partition) PositionAt(off Offset) (Position, error) { panic("todo") }

// OffsetAt returns the lowest offset whose record has a time of at least timeMs.
func (p *Partition) OffsetAt(timeMs int64) (off Offset, found bool, err error) { panic("todo") }

// TruncateTo removes all records at end and above.
func (p *Partition) TruncateTo(end Offset) error { panic("todo") }

// DeleteBefore moves the log start to off and drops segments wholly below it.
func (p *Partition) DeleteBefore(off Offset) error { panic("todo") }

// OnAdvance registers f to be called, without locks held, after the end or the last
// stable offset moved. f must not block. The result unregisters it.
func (p *Partition) OnAdvance(f func()) (cancel func()) { panic("todo") }

// Reader returns a reader positioned at from. An offset outside [Start, End] is
// ErrOffsetOutOfRange at the first Next.
func (p *Partition) Reader(from Offset, iso Isolation) *Reader { panic("todo") }

// Reader reads batches in order. For one goroutine.
type Reader struct{}

// Next returns the next data batch that holds a readable record at or after the
// position, or io.EOF when there is none yet; control batches and, by isolation,
// aborted ones are passed over. The batch is valid until the next call of a method
// of the Reader. It never blocks.
func (r *Reader) Next() (*Batch, error) { panic("todo") }

// Offset is the offset after the last batch returned or passed over.
func (r *Reader) Offset() Offset { panic("todo") }

// Position is Offset with the epoch of the batch before it.
func (r *Reader) Position() Position { panic("todo") }

func (r *Reader) Seek(off Offset) { panic("todo") }

// Wait returns once Next may have something new, or ctx ends.
func (r *Reader) Wait(ctx context.Context) error { panic("todo") }

// Close releases the segment the reader pins.
func (r *Reader) Close() { panic("todo") }
