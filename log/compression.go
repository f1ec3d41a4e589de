package log

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/thalweg/thalweg/internal/invariant"
)

// Compression is how the records of a batch are compressed. The numbers are those
// in a batch's attributes.
type Compression int8

const (
	// NoCompression leaves records as they are. Where a setting's zero value stands
	// for a default, it says that none is wanted.
	NoCompression Compression = -1

	// Gzip has levels 1 (fast) to 9 (small).
	Gzip Compression = 1
	// Snappy has no levels.
	Snappy Compression = 2
	// LZ4 has levels 1 (fast) to 9 (small).
	LZ4 Compression = 3
	// Zstd has levels 1 (fast) to 22 (small), of which four differ: those that are
	// asked for are taken to the nearest.
	Zstd Compression = 4
)

// maxLevel is the greatest level of each compression, by number.
var maxLevel = [...]int{Gzip: 9, Snappy: 0, LZ4: 9, Zstd: 22}

// orNone is c with the two ways to say none made one.
func (c Compression) orNone() Compression {
	if c == NoCompression {
		return 0
	}
	return c
}

func (c Compression) String() string {
	switch c {
	case NoCompression, 0:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("compression %d", int8(c))
}

// CheckLevel returns why batches cannot be compressed like this, or nil. Level 0 is
// the codec's default.
func (c Compression) CheckLevel(level int) error {
	switch {
	case c < NoCompression || c > Zstd:
		return fmt.Errorf("log: %v is not known; there are log.NoCompression, log.Gzip, log.Snappy, log.LZ4 and log.Zstd", c)
	case level == 0:
		return nil
	case c <= 0 || maxLevel[c] == 0:
		return fmt.Errorf("log: compression level %d is set, but %v has no levels", level, c)
	case level < 0 || level > maxLevel[c]:
		return fmt.Errorf("log: compression level is %d, %v has 1 to %d, and 0 for its default", level, c, maxLevel[c])
	}
	return nil
}

// Compressor compresses batches, for a BatchBuilder. It keeps encoders for use
// again, which makes one worth sharing. For concurrent use.
type Compressor struct {
	codec    Compression // positive, or else it does nothing
	level    int
	encoders sync.Pool // what encoder makes
}

// NewCompressor returns a compressor, or an error for what CheckLevel refuses.
func NewCompressor(c Compression, level int) (*Compressor, error) {
	if err := c.CheckLevel(level); err != nil {
		return nil, err
	}
	return &Compressor{codec: c, level: level}, nil
}

// encoder appends the compressed form of src to dst.
type encoder interface {
	encode(dst, src []byte) []byte
}

// compress appends the compressed form of src to dst. The compressor is active.
func (c *Compressor) compress(dst, src []byte) []byte {
	if c.codec == Snappy {
		return encodeSnappy(dst, src)
	}
	e, ok := c.encoders.Get().(encoder)
	if !ok {
		e = c.newEncoder()
	}
	dst = e.encode(dst, src)
	c.encoders.Put(e)
	return dst
}

// active tells whether there is anything to do. It is safe on nil.
func (c *Compressor) active() bool { return c != nil && c.codec > 0 }

func (c *Compressor) newEncoder() encoder {
	switch c.codec {
	case Gzip:
		level := gzip.DefaultCompression
		if c.level != 0 {
			level = c.level
		}
		e := new(streamEncoder)
		w, err := gzip.NewWriterLevel(&e.to, level)
		invariant.Check(err == nil, "gzip level %d: %v", level, err)
		e.writer = w
		return e
	case LZ4:
		level := lz4.Fast
		if c.level != 0 {
			level = lz4.Level1 << (c.level - 1)
		}
		e := new(streamEncoder)
		w := lz4.NewWriter(&e.to)
		// What readers of the format expect: independent blocks of 64 KiB. The batch
		// has a checksum of its own.
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false),
			lz4.CompressionLevelOption(level), lz4.ConcurrencyOption(1))
		invariant.Check(err == nil, "lz4 level %d: %v", level, err)
		e.writer = w
		return e
	}
	level := zstd.SpeedDefault
	if c.level != 0 {
		level = zstd.EncoderLevelFromZstd(c.level)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindowBytes), zstd.WithLowerEncoderMem(true))
	invariant.Check(err == nil, "zstd level %d: %v", c.level, err)
	return zstdEncoder{w}
}

// zstdWindowBytes is how far back zstd looks. Batches are seldom larger, and an
// encoder keeps a multiple of it in memory.
const zstdWindowBytes = 1 << 20

type zstdEncoder struct{ *zstd.Encoder }

func (e zstdEncoder) encode(dst, src []byte) []byte { return e.EncodeAll(src, dst) }

// streamEncoder is an encoder behind the interface of a stream.
type streamEncoder struct {
	to     byteWriter
	writer interface {
		io.WriteCloser
		Reset(io.Writer)
	}
}

func (e *streamEncoder) encode(dst, src []byte) []byte {
	e.to.b = dst
	e.writer.Reset(&e.to)
	_, err := e.writer.Write(src)
	if err == nil {
		err = e.writer.Close()
	}
	invariant.Check(err == nil, "compress in memory: %v", err)
	dst, e.to.b = e.to.b, nil
	return dst
}

// byteWriter appends what is written to it.
type byteWriter struct{ b []byte }

func (w *byteWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// encodeSnappy appends src in the framing of the Xerial library, which is what the
// format means by snappy.
func encodeSnappy(dst, src []byte) []byte {
	const header, block, prefix = 16, 32 << 10, 4
	blocks := (len(src) + block - 1) / block
	// With room for the worst case it is written in place.
	dst = slices.Grow(dst, header+blocks*(prefix+s2.MaxEncodedLen(block)))
	framed := xerial.Encode(dst[len(dst):], src)
	return dst[:len(dst)+len(framed)]
}

// compressors are a log's, one for each way to compress.
type compressors struct {
	mu  sync.Mutex // a leaf
	all map[compressorKey]*Compressor
}

type compressorKey struct {
	codec Compression
	level int
}

// of returns the compressor for settings that were checked, nil for none.
func (c *compressors) of(codec Compression, level int) *Compressor {
	if codec <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := compressorKey{codec, level}
	found := c.all[key]
	if found == nil {
		if c.all == nil {
			c.all = make(map[compressorKey]*Compressor)
		}
		found = &Compressor{codec: codec, level: level}
		c.all[key] = found
	}
	return found
}
