package checkpoint

import (
	"context"
	"log/slog"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// Config says how a job checkpoints. The zero value means Every(100 ms), exactly once.
type Config struct{ interval time.Duration }

// Every sets the time between two checkpoints, at least 1 ms.
func Every(d time.Duration) Config { panic("todo") }

// Interval is the time between two checkpoints.
func (c Config) Interval() time.Duration { panic("todo") }

// ID names a checkpoint of a job: N is unique within an attempt, ids are compared
// attempt first.
type ID struct {
	Attempt int64
	N       int64
}

// Before orders ids.
func (a ID) Before(b ID) bool { panic("todo") }

// PlaneOptions configures Open. The zero value suits production.
type PlaneOptions struct {
	FS           vfs.FS
	Log          log.Options // FS, Now and Logger above win
	Now          func() time.Time
	SyncInterval time.Duration // background sync that makes checkpoints known-durable; zero means 3 s, negative never (tests call SyncAll)
	Logger       *slog.Logger
}

// Plane is the log plane of one node: its partitions, the metadata log and the
// state machine over it, which hands out producer ids and decides every
// transaction. The root package, and streamtest, sit on it.
type Plane struct{}

// Open opens the log below dir, replays the metadata log and ends every
// transaction whose owner is over, by the verdict the metadata log gives.
func Open(dir string, o PlaneOptions) (*Plane, error) { panic("todo") }

// Log is the node's log.
func (p *Plane) Log() *log.Log { panic("todo") }

// AcquireProducer hands out a producer id for an idempotent producer; it is durable
// before it returns. ReleaseProducer ends it.
func (p *Plane) AcquireProducer(ctx context.Context) (log.ProducerID, error) { panic("todo") }
func (p *Plane) ReleaseProducer(id log.ProducerID) error                     { panic("todo") }

// SyncAll syncs every partition and then records in the metadata log which
// checkpoints are known to be durable and whose markers are.
func (p *Plane) SyncAll(ctx context.Context) error { panic("todo") }

// Close ends background work and closes the log.
func (p *Plane) Close() error { panic("todo") }

// TaskID names a task: a stage of the topology and its shard or partition.
type TaskID struct {
	Stage string
	Shard int
}

// Input is how far a task has read one source partition.
type Input struct {
	Partition log.TopicPartition
	Next      log.Position
}

// Changelog is how far a task has written one of its changelogs.
type Changelog struct {
	Partition log.TopicPartition
	End       log.Position
}

// Report is what a task says of itself at a barrier.
type Report struct {
	Inputs     []Input
	Changelogs []Changelog
	State      []byte // the engine's own: watermarks and idleness
	Moved      bool   // anything differs from the report before
}

// Hooks are called by a Session, one at a time and never with its locks held, from
// whichever goroutine calls into the session or from one of the session's own.
type Hooks struct {
	Barrier  func(n int64)   // inject barrier n into every source task
	Complete func(id ID)     // checkpoint id is committed (or nothing moved): n+1 may be appended
	Failed   func(err error) // the attempt is over; nothing more will complete
}

// JobOptions describes a job to StartJob.
type JobOptions struct {
	Name        string
	Tasks       []TaskID
	AtLeastOnce bool
	Hooks       Hooks
	Synchronous bool // no goroutines: waits are done inline (for tests in virtual time on memory)
}

// StartJob begins a new attempt: it commits attempt+1 first, ends what older attempts
// left open in every partition by the metadata log's verdict, and then picks the
// checkpoint to start from: the newest retained one whose positions are all there.
func (p *Plane) StartJob(ctx context.Context, o JobOptions) (*Session, error) { panic("todo") }

// Session is one attempt of a job. Its methods may be called concurrently.
type Session struct{}

// Restored is the checkpoint the attempt starts from; ok is false when the job has none yet.
func (s *Session) Restored() (id ID, ok bool) { panic("todo") }

// Report returns what task reported in the restored checkpoint.
func (s *Session) RestoredReport(task TaskID) (Report, bool) { panic("todo") }

// Begin commits checkpoint 0 of a job that has none: where every source starts.
func (s *Session) Begin(ctx context.Context, reports map[TaskID]Report) error { panic("todo") }

func (s *Session) Attempt() int64 { panic("todo") }

// Trigger starts the next checkpoint unless one is in flight (then it is a no-op and
// reports false). It calls Hooks.Barrier before it returns.
func (s *Session) Trigger() (started bool) { panic("todo") }

// Writer returns the node's one writer of a partition in this attempt.
func (s *Session) Writer(tp log.TopicPartition) (*Writer, error) { panic("todo") }

// Report hands in a task's report for barrier n. It does not block: once everything
// written through the session's writers for n is acknowledged and all tasks
// have reported, Complete is committed, the markers are written and Hooks.Complete called.
func (s *Session) Report(task TaskID, n int64, r Report) { panic("todo") }

// Close ends the attempt on this side: late reports and writes are refused. Open
// transactions are ended when the next attempt starts, or now when the job stops for good.
func (s *Session) Close() error { panic("todo") }

// Writer appends to one partition inside the transaction of the open generation. It
// stamps producer id and sequence. For concurrent use by the node's tasks.
type Writer struct{}

// Write appends what b holds as part of checkpoint n, which must be the open
// generation (the one after the last completed), and resets b. It does not wait for the sync policy.
func (w *Writer) Write(n int64, b *log.BatchBuilder) (log.Position, error) { panic("todo") }
