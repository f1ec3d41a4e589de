package topic

import (
	"context"
	"iter"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic/codec"
)

// Topic is a plain value: a name, two codecs and settings. It touches no log.
type Topic[K, V any] struct{ name string }

func New[K, V any](name string) Topic[K, V]                          { panic("todo") }
func (t Topic[K, V]) KeyCodec(c codec.Codec[K]) Topic[K, V]          { panic("todo") }
func (t Topic[K, V]) ValueCodec(c codec.Codec[V]) Topic[K, V]        { panic("todo") }
func (t Topic[K, V]) EventTime(f func(V) time.Time) Topic[K, V]      { panic("todo") }
func (t Topic[K, V]) Partitions(n int) Topic[K, V]                   { panic("todo") }
func (t Topic[K, V]) Sync(s log.Sync) Topic[K, V]                    { panic("todo") }
func (t Topic[K, V]) Uncommitted() Topic[K, V]                       { panic("todo") }
func (t Topic[K, V]) PartitionBy(f func(k K, n int) int) Topic[K, V] { panic("todo") }
func (t Topic[K, V]) Name() string                                   { panic("todo") }

// Spec is what the topic is created with; Err is a fault in the declaration.
func (t Topic[K, V]) Spec() log.TopicSpec { panic("todo") }
func (t Topic[K, V]) Err() error          { panic("todo") }

// Codecs returns the topic's codecs: those set, else the defaults of r. An error names topic and type.
func (t Topic[K, V]) Codecs(r *codec.Registry) (codec.Codec[K], codec.Codec[V], error) { panic("todo") }

// EventTimeFunc is the function set by EventTime, or nil.
func (t Topic[K, V]) EventTimeFunc() func(V) time.Time { panic("todo") }

// Partitioner is the function set by PartitionBy, or nil for the default (see Partition).
func (t Topic[K, V]) Partitioner() func(k K, n int) int { panic("todo") }

// IsUncommitted tells whether Uncommitted was set.
func (t Topic[K, V]) IsUncommitted() bool { panic("todo") }

// Partition is the default partitioner: murmur2 of the encoded key, made positive, modulo n, as Kafka's clients do.
func Partition(key []byte, n int) int { panic("todo") }

// Position says where to start reading.
type Position struct{}

func Start() Position           { panic("todo") }
func End() Position             { panic("todo") }
func At(t time.Time) Position   { panic("todo") }
func Offset(off int64) Position { panic("todo") }

// Resolve returns the offset p means in partition lp now.
func (p Position) Resolve(lp *log.Partition) (log.Offset, error) { panic("todo") }

// Record is one typed record.
type Record[K, V any] struct {
	Key            K
	Value          V
	NoKey, Deleted bool
	Time           time.Time
	Headers        []Header
	Partition      int
	Offset         int64
}

// Source is what Read and Producer need of a node: the partitions of a topic,
// created with spec where they do not exist, and producer ids.
type Node interface {
	Open(topic string, spec log.TopicSpec) ([]*log.Partition, error)
	AcquireProducer(ctx context.Context) (log.ProducerID, error)
	ReleaseProducer(id log.ProducerID) error
}

// Read iterates over the records of t from a position; it follows the log until ctx ends.
// Use ReadToEnd to stop where the log ends at the call.
func Read[K, V any](ctx context.Context, n Node, t Topic[K, V], from Position) iter.Seq2[Record[K, V], error] {
	panic("todo")
}

// ReadToEnd is Read up to what the isolation level lets see at the call.
func ReadToEnd[K, V any](ctx context.Context, n Node, t Topic[K, V], from Position) iter.Seq2[Record[K, V], error] {
	panic("todo")
}

type ProducerOptions struct{}
type Producer[K, V any] struct{}

func NewProducer[K, V any](ctx context.Context, n Node, t Topic[K, V], o ProducerOptions) (*Producer[K, V], error) {
	panic("todo")
}
