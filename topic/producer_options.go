package topic

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/log"
)

// ProducerOptions configures a Producer. The zero value suits production.
type ProducerOptions struct {
	// BatchBytes is the size at which a batch is closed, between 1 KiB and 16
	// MiB. A larger record travels in a batch of its own. Zero means 128 KiB, or
	// less where the topic has so many partitions that MemoryBytes would not
	// hold two batches of each. It must not exceed the log's MaxBatchBytes, or
	// full batches are refused.
	BatchBytes int

	// Linger is how long a queued record waits for others to share its batch.
	// Records that somebody waits for, by Send or by Flush, do not linger. Zero
	// means 1 ms, negative none.
	Linger time.Duration

	// MemoryBytes bounds the batches that are not written yet, and thereby the
	// size of one record; each partition with such records takes at least one
	// batch of it. While it is used up, sending waits. Zero means 32 MiB, and at
	// least one batch.
	MemoryBytes int

	// DeliveryTimeout bounds how long a batch may take from its first record on. One
	// that is not written by then fails with ErrTimeout and never will be; where it is
	// written but not acknowledged the error matches ErrUnknown too. Zero means 2
	// minutes, negative no bound. A write that the operating system does not come back
	// from cannot be given up: its records fail when it does.
	DeliveryTimeout time.Duration

	// Name lets the producer go on after a restart: one of the same topic and name has
	// the same producer id and numbers its records on from where the log says the one
	// before stopped (Producer.Written, Producer.Repeat), for as long as the log
	// remembers it. At most one of a topic and name is open at a time: the next is
	// ErrNameInUse. It has at most 249 bytes. Empty means an id of its own.
	Name string

	// Compression is how batches are compressed. Zero means as the topic says, and
	// log.NoCompression not at all. Batches are counted and cut at BatchBytes as they
	// are before; compressed ones take memory beside MemoryBytes, at the most
	// BatchBytes for each batch.
	Compression log.Compression

	// CompressionLevel is the level of Compression, in the codec's own numbers. Zero
	// means its default.
	CompressionLevel int

	// Now is the clock of records that bring no time. Nil means time.Now.
	Now func() time.Time
}

const (
	minBatchBytes     = 1 << 10
	defaultBatchBytes = 128 << 10
	maxBatchBytes     = 16 << 20
	defaultMemory     = 32 << 20
	defaultLinger     = time.Millisecond
	defaultDelivery   = 2 * time.Minute
	maxNameBytes      = 249
)

// withDefaults returns the resolved options for a topic of n partitions.
func (o ProducerOptions) withDefaults(n int) (ProducerOptions, error) {
	if o.BatchBytes != 0 && (o.BatchBytes < minBatchBytes || o.BatchBytes > maxBatchBytes) {
		return o, fmt.Errorf("topic: ProducerOptions.BatchBytes is %d; give 0 or a size between %d and %d", o.BatchBytes, minBatchBytes, maxBatchBytes)
	}
	if err := o.Compression.CheckLevel(o.CompressionLevel); err != nil {
		return o, fmt.Errorf("topic: ProducerOptions.Compression and CompressionLevel: %w", err)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = max(defaultMemory, o.BatchBytes)
	}
	if least := max(o.BatchBytes, minBatchBytes); o.MemoryBytes < least {
		return o, fmt.Errorf("topic: ProducerOptions.MemoryBytes is %d; give 0 or at least one batch, %d", o.MemoryBytes, least)
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = min(max(o.MemoryBytes/(2*n), minBatchBytes), defaultBatchBytes)
	}
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	if o.DeliveryTimeout == 0 {
		o.DeliveryTimeout = defaultDelivery
	}
	if len(o.Name) > maxNameBytes {
		return o, fmt.Errorf("topic: ProducerOptions.Name has %d bytes; give at most %d", len(o.Name), maxNameBytes)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}
