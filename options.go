package thalweg

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// Options configures a node. The zero value suits production.
type Options struct {
	// Log configures the partitions: the size and age of segments, the clock, the
	// file system.
	Log log.Options

	// Producer configures the producers that Node.Producer makes. Their clock is
	// Log.Now unless Producer.Now says otherwise.
	Producer topic.ProducerOptions

	// Consumer configures the consumers that Node.Consumer and Node.Subscribe make.
	Consumer topic.ConsumerOptions

	// TransactionTimeout is how long a transaction of Transact may be open, by the
	// clock Log.Now, before it is aborted. Zero means 1 minute.
	TransactionTimeout time.Duration

	// State keeps the stores of stateful steps. Nil means state.Disk with 64 MiB
	// of block cache, or state.Memory for a node without a directory or with a
	// file system of its own.
	State state.Backend

	// StateMemory bounds, for each job, the state and output that it keeps in
	// memory until they are committed, in bytes; at the bound it commits early.
	// Zero means stream.DefaultStateMemory.
	StateMemory int64

	// CacheBytes bounds the read cache that all stores of the node share. Zero
	// means 64 MiB.
	CacheBytes int64

	// SyncInterval is the time between two background syncs, after which the
	// checkpoints before them are known to survive a power cut. Zero means 3 s,
	// negative never: what recovery has to remember then grows without end.
	SyncInterval time.Duration

	// GroupRetention is how long a consumer group that nobody is a member of is kept,
	// with its positions. Zero means 7 days, negative for ever.
	GroupRetention time.Duration

	// Logger receives structured events. Nil means Log.Logger, and nil there
	// discards them.
	Logger *slog.Logger
}

const (
	defaultCacheBytes      = 64 << 20
	defaultBlockCacheBytes = 64 << 20

	// memorySegmentBytes is what each partition of a node in memory takes at once.
	memorySegmentBytes = 1 << 20
)

// withDefaults returns o with every zero replaced by its meaning; inMemory tells
// that the node has no directory.
func (o Options) withDefaults(inMemory bool) (Options, error) {
	if o.CacheBytes < 0 {
		return o, fmt.Errorf("thalweg: Options.CacheBytes is %d: it must not be negative", o.CacheBytes)
	}
	if o.TransactionTimeout < 0 {
		return o, fmt.Errorf("thalweg: Options.TransactionTimeout is %v: it must not be negative", o.TransactionTimeout)
	}
	if o.StateMemory < 0 {
		return o, fmt.Errorf("thalweg: Options.StateMemory is %d: it must not be negative", o.StateMemory)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.Logger == nil {
		o.Logger = o.Log.Logger
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Producer.Now == nil {
		o.Producer.Now = o.Log.Now
	}
	if o.Consumer.Logger == nil {
		o.Consumer.Logger = o.Logger
	}
	if inMemory && o.Log.SegmentBytes == 0 {
		o.Log.SegmentBytes = memorySegmentBytes
	}
	onDisk := !inMemory && o.Log.FS == nil
	if o.State == nil && onDisk {
		o.State = state.Disk(defaultBlockCacheBytes)
	}
	if o.State == nil {
		o.State = state.Memory()
	}
	switch {
	case o.Log.FS != nil:
	case inMemory:
		o.Log.FS = vfs.NewMem()
	default:
		o.Log.FS = vfs.OS()
	}
	return o, nil
}
