package bench

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

// user is a key of 16 bytes.
type user [16]byte

// event is a record of 100 bytes.
type event struct {
	User  user
	Kind  uint8
	Bot   bool
	Cents int64
	Rest  [74]byte
}

const eventBytes = 100

var userCodec = codec.Func(
	func(dst []byte, u user) ([]byte, error) { return append(dst, u[:]...), nil },
	func(src []byte) (u user, err error) {
		if len(src) != len(u) {
			return u, errors.New("bench: a user has 16 bytes")
		}
		return user(src), nil
	})

// eventCodec is of the whole event, keyedCodec of what is left where the user is the key.
var (
	eventCodec = codec.Func(appendEvent, decodeEvent)
	keyedCodec = codec.Func(
		func(dst []byte, e event) ([]byte, error) { return appendRest(dst, e), nil },
		func(src []byte) (e event, err error) { return e, decodeRest(src, &e) })
)

func appendEvent(dst []byte, e event) ([]byte, error) {
	return appendRest(append(dst, e.User[:]...), e), nil
}

func appendRest(dst []byte, e event) []byte {
	dst = append(dst, e.Kind, boolByte(e.Bot))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Cents))
	return append(dst, e.Rest[:]...)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func decodeEvent(src []byte) (e event, err error) {
	if len(src) != eventBytes {
		return e, errors.New("bench: an event has 100 bytes")
	}
	e.User = user(src)
	return e, decodeRest(src[len(e.User):], &e)
}

func decodeRest(src []byte, e *event) error {
	if len(src) != eventBytes-len(e.User) {
		return errors.New("bench: an event has 84 bytes besides its user")
	}
	e.Kind, e.Bot, e.Cents = src[0], src[1] != 0, int64(binary.LittleEndian.Uint64(src[2:]))
	copy(e.Rest[:], src[10:])
	return nil
}

var windowUserCodec = codec.Func(
	func(dst []byte, k window.Key[user]) ([]byte, error) {
		return append(binary.BigEndian.AppendUint64(dst, uint64(k.Start.UnixMilli())), k.Key[:]...), nil
	},
	func(src []byte) (k window.Key[user], err error) { return k, errors.New("bench: not read") })

// input is what a pipeline reads: events over 200 seconds of event time, in order.
type input struct {
	records    int
	keys       int
	partitions int                      // 0 is 2
	keyed      bool                     // the user is the key of the record, and all of one user are in one partition
	pick       func(rng *rand.Rand) int // the user of an event; nil is any of keys
}

// eventTime is what the events of an input extend over.
const eventTime = 200 * time.Second

func (in input) withDefaults() input {
	if in.partitions == 0 {
		in.partitions = 2
	}
	if in.pick == nil {
		in.pick = func(rng *rand.Rand) int { return rng.IntN(in.keys) }
	}
	return in
}

// name is the topic that in is in.
func (in input) name() string {
	if in.keyed {
		return "keyed"
	}
	return "events"
}

func (in input) events() topic.Topic[string, event] {
	return topic.New[string, event]("events").ValueCodec(eventCodec).Partitions(in.partitions)
}

func (in input) keyedEvents() topic.Topic[user, event] {
	return topic.New[user, event]("keyed").KeyCodec(userCodec).ValueCodec(keyedCodec).Partitions(in.partitions)
}

// fill writes the events. None is of a bot.
func (in input) fill(b *testing.B, n *thalweg.Node) {
	b.Helper()
	in = in.withDefaults()
	var t thalweg.Named = in.events()
	if in.keyed {
		t = in.keyedEvents()
	}
	if err := n.Create(b.Context(), t); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(in.keys)))
	perPartition := in.records / in.partitions
	for p := range in.partitions {
		part := partitionOf(b, n, in.name(), p)
		var builder log.BatchBuilder
		buf := make([]byte, 0, eventBytes)
		for i := range perPartition {
			e := event{Kind: uint8(i % 4), Cents: int64(i)}
			number := in.pick(rng)
			if in.keyed {
				number = number/in.partitions*in.partitions + p
			}
			binary.LittleEndian.PutUint64(e.User[:], uint64(number))
			at := int64(i) * eventTime.Milliseconds() / int64(perPartition)
			if in.keyed {
				buf = appendRest(buf[:0], e)
				builder.Add(at, e.User[:], buf, nil)
			} else {
				buf, _ = appendEvent(buf[:0], e)
				builder.Add(at, nil, buf, nil)
			}
			if builder.Len() == 500 || i == perPartition-1 {
				if _, err := part.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
					b.Fatal(err)
				}
				builder.Reset()
			}
		}
	}
}

func partitionOf(b *testing.B, n *thalweg.Node, name string, p int) *log.Partition {
	b.Helper()
	part, err := n.Log().Partition(log.TopicPartition{Topic: name, Partition: log.PartitionID(p)})
	if err != nil {
		b.Fatal(err)
	}
	return part
}

// digest is what a set of counts by window and user comes to, in any order.
type digest struct {
	rows, records int64
	sum           uint64
}

func (d *digest) add(key []byte, count int64) {
	d.rows++
	d.records += count
	d.sum += uint64(count) * uint64(crc32.Checksum(key, castagnoli))
}

// digestOf reads what is committed in a topic of counts.
func digestOf(b *testing.B, n *thalweg.Node, name string, partitions int) (d digest) {
	b.Helper()
	for p := range partitions {
		r := partitionOf(b, n, name, p).Reader(0, log.ReadCommitted)
		defer r.Close()
		for {
			read, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			it := read.Records()
			for it.Next() {
				count, err := codec.Int64.Decode(it.Value)
				if err != nil {
					b.Fatal(err)
				}
				d.add(it.Key, count)
			}
			if it.Err() != nil {
				b.Fatal(it.Err())
			}
		}
	}
	return d
}
