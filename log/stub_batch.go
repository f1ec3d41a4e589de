package log

// BatchBuilder encodes records into one record batch (Kafka message format v2).
// It reuses its buffer: steady state allocates nothing. Not for concurrent use.
type BatchBuilder struct{ todo int }

// Add appends a record. key and value are copied; nil means absent.
func (b *BatchBuilder) Add(timeMs int64, key, value []byte, headers []Header) { panic("todo") }

// Len is the number of records added since Reset.
func (b *BatchBuilder) Len() int { panic("todo") }

// Size is the encoded size in bytes of what was added, the batch header included.
func (b *BatchBuilder) Size() int { panic("todo") }

// Reset empties the builder and keeps its buffer.
func (b *BatchBuilder) Reset() { panic("todo") }

// Producer is what a batch says of its writer. The zero value is not a valid
// producer: use NoProducer as ID for batches without sequence numbers.
type Producer struct {
	ID            ProducerID
	Epoch         int16
	Sequence      int32 // of the first record
	Transactional bool
}

// Finish fills in header and checksum and returns the encoded batch with base
// offset 0. It is valid until the next Add or Reset. Finish may be called again
// with another producer: the records are not encoded anew.
func (b *BatchBuilder) Finish(p Producer) []byte { panic("todo") }

// Batch is a decoded batch header together with the batch's bytes. Bytes and all
// slices read from it point into the log's mapping and are valid only while the
// reader that returned it says so.
type Batch struct {
	Base, Last        Offset // first and last offset, both included
	Epoch             LeaderEpoch
	BaseTime, MaxTime int64
	Producer          Producer
	Control           bool
	Count             int32
	Bytes             []byte // the whole encoded batch
	First             Offset // records below First are skipped by Records (a reader that was positioned inside the batch)
}

// ParseBatch decodes the header of the batch at the start of b, checks its
// bounds and its checksum, and returns the batch. What follows it in b is ignored.
func ParseBatch(b []byte) (Batch, error) { panic("todo") }

// Records returns an iterator over the records of the batch, from First on.
func (b *Batch) Records() RecordIterator { panic("todo") }

// RecordIterator walks the records of a batch without allocating (records that
// have headers allocate when Headers is called). Use:
//
//	it := batch.Records()
//	for it.Next() {
//		... it.Offset, it.Time, it.Key, it.Value
//	}
//	if it.Err() != nil { ... }
type RecordIterator struct {
	Offset     Offset
	Time       int64
	Key, Value []byte // nil when absent
	todo       int
}

func (it *RecordIterator) Next() bool { panic("todo") }

// Err is the first fault met in the batch's records; Next has returned false.
func (it *RecordIterator) Err() error { panic("todo") }

// Headers decodes the headers of the present record.
func (it *RecordIterator) Headers() []Header { panic("todo") }

// HasHeaders tells whether the present record has headers.
func (it *RecordIterator) HasHeaders() bool { panic("todo") }
