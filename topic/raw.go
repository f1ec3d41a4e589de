package topic

import "github.com/thalweg/thalweg/log"

// The log's own types, for packages that sit on topics and read partitions batch by batch.
type (
	TopicPartition = log.TopicPartition
	PartitionID    = log.PartitionID
	LogOffset      = log.Offset
	LogPosition    = log.Position
	LogEpoch       = log.LeaderEpoch
	LogPartition   = log.Partition
	LogReader      = log.Reader
	Batch          = log.Batch
	RecordIterator = log.RecordIterator
	BatchBuilder   = log.BatchBuilder
	Header         = log.Header
	ProducerID     = log.ProducerID
	LogTail        = log.Tail
)

// EncodePlain seals what b holds into a batch for p that belongs to no producer.
func EncodePlain(p *LogPartition, b *BatchBuilder) ([]byte, error) {
	return p.Encode(b, log.Producer{ID: log.NoProducer})
}

// ErrOffsetOutOfRange is the log's own.
var ErrOffsetOutOfRange = log.ErrOffsetOutOfRange

// Spec is what a topic is created with.
type Spec = log.TopicSpec

// DecodeHeaders reads headers that RecordIterator.AppendHeaders or AppendHeaders encoded; the
// rest of b follows them. Values are parts of b.
func DecodeHeaders(b []byte) (headers []Header, rest []byte, err error) { return log.DecodeHeaders(b) }

// AppendHeaders appends the encoding of headers to dst.
func AppendHeaders(dst []byte, headers []Header) []byte { return log.AppendHeaders(dst, headers) }

// Isolation tells a reader which records it may see.
type Isolation = log.Isolation

const (
	ReadCommitted   = log.ReadCommitted   // committed records only
	ReadUncommitted = log.ReadUncommitted // also those of open and aborted transactions
)
