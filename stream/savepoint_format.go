package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"sort"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic"
)

// A savepoint is one file, written front to back. Numbers of fixed size are little-endian;
// varints are those of encoding/binary, "bytes" are an uvarint length and as many bytes.
//
//	head    at  size  field
//	         0     7  "thalweg"
//	         7     1  'S'
//	         8     1  format version, 1
//
//	block   at  size  field: entries of one shard of one store, ascending by key
//	         0     4  length n of the entries
//	         4     4  CRC-32C of the entries
//	         8     n  for each entry: bytes key, bytes value
//
//	index   the same with the content below in place of entries
//	        bytes    name of the job
//	        uvarint  attempt, uvarint number of the checkpoint
//	        varint   time it was taken, ms since the epoch
//	        uvarint  tasks, and for each:
//	                 bytes stage, uvarint shard, bytes event time (clocks.go in engine)
//	                 uvarint inputs, and for each: bytes topic, uvarint partition,
//	                         uvarint offset of the first record not read
//	        uvarint  stores, and for each: bytes name, bytes stage, uvarint shards, and for each shard:
//	                 uvarint blocks, and for each: uvarint place in the file, uvarint
//	                         length of the whole block, bytes first key
//
//	tail    at  size  field
//	         0     8  place of the index in the file
//	         8     4  CRC-32C of bytes [0, 8)
//	        12     8  "thalwegS"
//
// An entry is one of a store (state/format.go), its key with the kind in front and its value
// with the version: values, and the schemas that they are read with. A file that was not
// written to its end has no tail, and does not open. Nothing is allocated by a length that is
// not inside of the file.
const (
	savepointMagic   = "thalwegS"
	savepointVersion = 1
	savepointTail    = 20
	savepointBlock   = 64 << 10 // bytes of entries from which a block is full
	blockHead        = 8
)

// ErrSavepoint is returned for a file that is not a savepoint, or a damaged one.
var ErrSavepoint = errors.New("stream: not a savepoint, or a damaged one")

func damaged(what string) error { return fmt.Errorf("%w: %s", ErrSavepoint, what) }

var savepointSums = crc32.MakeTable(crc32.Castagnoli)

// savepointIndex is what a savepoint tells of itself.
type savepointIndex struct {
	job    string
	id     checkpoint.ID
	at     int64 // ms since the epoch
	tasks  []savepointTask
	stores []savepointStore
}

type savepointTask struct {
	id     checkpoint.TaskID
	clocks []byte
	inputs []savepointInput
}

type savepointInput struct {
	partition topic.TopicPartition
	next      topic.LogOffset
}

type savepointStore struct {
	name   string
	stage  string             // whose tasks have it
	shards [][]savepointPlace // the blocks of each
}

// savepointPlace is where a block is.
type savepointPlace struct {
	at, size int64
	first    []byte // key
}

// savepointWriter writes a savepoint.
type savepointWriter struct {
	w     io.Writer
	at    int64
	block []byte
	first []byte
}

func (w *savepointWriter) write(b []byte) error {
	n, err := w.w.Write(b)
	w.at += int64(n)
	return err
}

// writeBlock writes content as a block.
func (w *savepointWriter) writeBlock(content []byte) (place savepointPlace, err error) {
	place = savepointPlace{at: w.at, size: blockHead + int64(len(content))}
	var head [blockHead]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(content)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(content, savepointSums))
	return place, errors.Join(w.write(head[:]), w.write(content))
}

// shard writes the entries of one shard.
func (w *savepointWriter) shard(entries iter.Seq2[state.Entry, error]) (places []savepointPlace, err error) {
	flush := func() error {
		if len(w.block) == 0 {
			return nil
		}
		place, err := w.writeBlock(w.block)
		place.first = bytes.Clone(w.first)
		places, w.block = append(places, place), w.block[:0]
		return err
	}
	w.block = w.block[:0]
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		if len(w.block) == 0 {
			w.first = append(w.first[:0], e.Key...)
		}
		w.block = appendBytes(appendBytes(w.block, e.Key), e.Value)
		if len(w.block) >= savepointBlock {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return places, flush()
}

// finish writes what makes the file a savepoint.
func (w *savepointWriter) finish(x savepointIndex) error {
	place, err := w.writeBlock(x.append(nil))
	if err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint64(nil, uint64(place.at))
	tail = binary.LittleEndian.AppendUint32(tail, crc32.Checksum(tail, savepointSums))
	return w.write(append(tail, savepointMagic...))
}

func appendBytes[T ~[]byte | ~string](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func (x savepointIndex) append(dst []byte) []byte {
	dst = appendBytes(dst, x.job)
	dst = binary.AppendUvarint(dst, uint64(x.id.Attempt))
	dst = binary.AppendUvarint(dst, uint64(x.id.N))
	dst = binary.AppendVarint(dst, x.at)
	dst = binary.AppendUvarint(dst, uint64(len(x.tasks)))
	for _, t := range x.tasks {
		dst = appendBytes(dst, t.id.Stage)
		dst = binary.AppendUvarint(dst, uint64(t.id.Shard))
		dst = appendBytes(dst, t.clocks)
		dst = binary.AppendUvarint(dst, uint64(len(t.inputs)))
		for _, in := range t.inputs {
			dst = appendBytes(dst, in.partition.Topic)
			dst = binary.AppendUvarint(dst, uint64(in.partition.Partition))
			dst = binary.AppendUvarint(dst, uint64(in.next))
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(x.stores)))
	for _, s := range x.stores {
		dst = appendBytes(appendBytes(dst, s.name), s.stage)
		dst = binary.AppendUvarint(dst, uint64(len(s.shards)))
		for _, places := range s.shards {
			dst = binary.AppendUvarint(dst, uint64(len(places)))
			for _, p := range places {
				dst = binary.AppendUvarint(dst, uint64(p.at))
				dst = binary.AppendUvarint(dst, uint64(p.size))
				dst = appendBytes(dst, p.first)
			}
		}
	}
	return dst
}

// fields takes the parts of an index apart; the first fault stays.
type fields struct {
	numbers
}

func (f *fields) bytes() []byte {
	n := f.uvarint()
	if f.damaged || n > uint64(len(f.src)) {
		f.damaged = true
		return nil
	}
	b := f.src[:n:n]
	f.src = f.src[n:]
	return b
}

// count is a number of things of which each takes a byte at the least.
func (f *fields) count() int {
	n := f.uvarint()
	if f.damaged || n > uint64(len(f.src)) {
		f.damaged = true
		return 0
	}
	return int(n)
}

// number is one that is not negative as an int64, and below a bound.
func (f *fields) number(below int64) int64 {
	n := f.uvarint()
	if n >= uint64(below) {
		f.damaged = true
		return 0
	}
	return int64(n)
}

const (
	anyNumber = 1<<63 - 1
	anyShard  = 1<<31 - 1
)

// parseSavepointIndex takes apart the index of a file whose blocks are in [head, end).
func parseSavepointIndex(b []byte, end int64) (x savepointIndex, err error) {
	f := &fields{numbers{src: b}}
	x.job = string(f.bytes())
	x.id = checkpoint.ID{Attempt: f.number(anyNumber), N: f.number(anyNumber)}
	x.at = f.varint()
	for range f.count() {
		t := savepointTask{id: checkpoint.TaskID{Stage: string(f.bytes()), Shard: int(f.number(anyShard))}, clocks: f.bytes()}
		for range f.count() {
			in := savepointInput{partition: topic.TopicPartition{Topic: string(f.bytes()), Partition: topic.PartitionID(f.number(anyShard))}}
			in.next = topic.LogOffset(f.number(anyNumber))
			t.inputs = append(t.inputs, in)
		}
		x.tasks = append(x.tasks, t)
	}
	for range f.count() {
		s := savepointStore{name: string(f.bytes()), stage: string(f.bytes())}
		for range f.count() {
			var places []savepointPlace
			for range f.count() {
				p := savepointPlace{at: f.number(anyNumber), size: f.number(anyNumber), first: f.bytes()}
				if p.at < int64(len(savepointMagic))+1 || p.size < blockHead || p.size > end || p.at > end-p.size ||
					len(places) > 0 && bytes.Compare(places[len(places)-1].first, p.first) >= 0 {
					f.damaged = true
				}
				places = append(places, p)
			}
			s.shards = append(s.shards, places)
		}
		x.stores = append(x.stores, s)
	}
	if f.damaged || len(f.src) > 0 {
		return savepointIndex{}, damaged("its index cannot be read")
	}
	return x, nil
}

// readBlock reads and checks a block.
func readBlock(r io.ReaderAt, at, size int64) ([]byte, error) {
	b := make([]byte, size)
	if _, err := r.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read a block of the savepoint: %w", err)
	}
	content := b[blockHead:]
	if int64(binary.LittleEndian.Uint32(b)) != int64(len(content)) || binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(content, savepointSums) {
		return nil, damaged(fmt.Sprintf("the block at byte %d has another checksum than it says", at))
	}
	return content, nil
}

// readSavepointIndex finds and reads the index of a file of size bytes.
func readSavepointIndex(r io.ReaderAt, size int64) (x savepointIndex, err error) {
	const head = len(savepointMagic) + 1
	if size < int64(head)+blockHead+savepointTail {
		return x, damaged("the file is too short")
	}
	var b [savepointTail]byte
	if _, err := r.ReadAt(b[:head], 0); err != nil {
		return x, fmt.Errorf("read the savepoint: %w", err)
	}
	if string(b[:len(savepointMagic)]) != savepointMagic {
		return x, damaged("it begins otherwise")
	}
	if v := b[len(savepointMagic)]; v != savepointVersion {
		return x, fmt.Errorf("%w: the savepoint has version %d, want %d; was it written by a newer version?", state.ErrVersion, v, savepointVersion)
	}
	if _, err := r.ReadAt(b[:], size-savepointTail); err != nil {
		return x, fmt.Errorf("read the savepoint: %w", err)
	}
	if string(b[12:]) != savepointMagic || binary.LittleEndian.Uint32(b[8:]) != crc32.Checksum(b[:8], savepointSums) {
		return x, damaged("it was not written to its end, or cut")
	}
	at := binary.LittleEndian.Uint64(b[:])
	if at < uint64(head) || at > uint64(size-savepointTail-blockHead) {
		return x, damaged("its index is not inside of it")
	}
	content, err := readBlock(r, int64(at), size-savepointTail-int64(at))
	if err != nil {
		return x, err
	}
	return parseSavepointIndex(content, int64(at))
}

// savedShard is one shard of a store in a savepoint. It may be read concurrently.
type savedShard struct {
	r      io.ReaderAt
	blocks []savepointPlace
}

// entries walks the entries with keys in [lo, hi); a nil hi is no bound.
func (s savedShard) entries(lo, hi []byte) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		// The last block that begins at or before lo, or the first.
		from := max(sort.Search(len(s.blocks), func(i int) bool { return bytes.Compare(s.blocks[i].first, lo) > 0 })-1, 0)
		for _, p := range s.blocks[from:] {
			if hi != nil && bytes.Compare(p.first, hi) >= 0 {
				return
			}
			content, err := readBlock(s.r, p.at, p.size)
			if err != nil {
				yield(state.Entry{}, err)
				return
			}
			f := &fields{numbers{src: content}}
			for len(f.src) > 0 {
				e := state.Entry{Key: f.bytes(), Value: f.bytes()}
				if f.damaged {
					yield(state.Entry{}, damaged(fmt.Sprintf("the block at byte %d cannot be taken apart", p.at)))
					return
				}
				if bytes.Compare(e.Key, lo) < 0 {
					continue
				}
				if hi != nil && bytes.Compare(e.Key, hi) >= 0 {
					return
				}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}
