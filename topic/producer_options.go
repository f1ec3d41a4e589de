package topic

import (
	"fmt"
	"time"
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

	// Now is the clock of records that bring no time. Nil means time.Now.
	Now func() time.Time
}

const (
	minBatchBytes     = 1 << 10
	defaultBatchBytes = 128 << 10
	maxBatchBytes     = 16 << 20
	defaultMemory     = 32 << 20
	defaultLinger     = time.Millisecond
)

// withDefaults returns the resolved options for a topic of n partitions.
func (o ProducerOptions) withDefaults(n int) (ProducerOptions, error) {
	if o.BatchBytes != 0 && (o.BatchBytes < minBatchBytes || o.BatchBytes > maxBatchBytes) {
		return o, fmt.Errorf("topic: ProducerOptions.BatchBytes is %d; give 0 or a size between %d and %d", o.BatchBytes, minBatchBytes, maxBatchBytes)
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
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}
