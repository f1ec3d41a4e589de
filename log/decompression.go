package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decoders are a log's, kept for use again. The zero value has the default limit.
// For concurrent use.
type decoders struct {
	limit int // bytes that a batch may decompress to; 0 means the default

	gzip, lz4, zstd sync.Pool
	unpackers       sync.Pool // of *unpacker, for who needs one for a moment
}

func (d *decoders) max() int {
	if d.limit == 0 {
		return defaultMaxDecompressed
	}
	return d.limit
}

// unpacker decompresses the records of one batch at a time into a buffer it owns.
// Whoever walks many batches keeps one.
type unpacker struct {
	from *decoders
	buf  []byte
}

// unpacker returns one for a moment; done takes it back.
func (d *decoders) unpacker() *unpacker {
	if u, ok := d.unpackers.Get().(*unpacker); ok {
		return u
	}
	return &unpacker{from: d}
}

func (d *decoders) done(u *unpacker) { d.unpackers.Put(u) }

// unpack returns the plain form of src, valid until the next call. What would exceed
// the limit is ErrTooLarge, what cannot be decompressed ErrInvalidBatch. Neither
// makes the buffer grow beyond the limit.
func (u *unpacker) unpack(c Compression, src []byte) (plain []byte, err error) {
	limit := u.from.max()
	switch c {
	case Gzip:
		plain, err = u.gzip(src, limit)
	case Snappy:
		plain, err = u.snappy(src, limit)
	case LZ4:
		plain, err = u.lz4(src, limit)
	case Zstd:
		plain, err = u.zstd(src, limit)
	}
	if cap(plain) > cap(u.buf) {
		u.buf = plain[:0]
	}
	switch {
	case err == errBomb:
		return nil, fmt.Errorf("%w: its %d bytes decompress by %v to more than %d; raise Options.MaxDecompressedBytes to read it",
			ErrTooLarge, len(src), c, limit)
	case err != nil:
		return nil, fmt.Errorf("%w: its records do not decompress by %v: %w", ErrInvalidBatch, c, err)
	}
	return plain, nil
}

// errBomb says that there is more than the limit.
var errBomb = errors.New("more than the limit")

func (u *unpacker) gzip(src []byte, limit int) ([]byte, error) {
	from := bytes.NewReader(src)
	r, ok := u.from.gzip.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer u.from.gzip.Put(r)
	if err := r.Reset(from); err != nil {
		return nil, err
	}
	return u.readAll(r, len(src), limit)
}

func (u *unpacker) lz4(src []byte, limit int) ([]byte, error) {
	from := bytes.NewReader(src)
	r, ok := u.from.lz4.Get().(*lz4.Reader)
	if !ok {
		r = lz4.NewReader(nil)
	}
	defer u.from.lz4.Put(r)
	r.Reset(from)
	return u.readAll(r, len(src), limit)
}

func (u *unpacker) zstd(src []byte, limit int) ([]byte, error) {
	r, ok := u.from.zstd.Get().(*zstd.Decoder)
	if !ok {
		var err error
		r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, err
		}
	}
	defer u.from.zstd.Put(r)
	plain, err := r.DecodeAll(src, u.buf[:0])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, errBomb
	}
	return plain, err
}

// readAll reads r to its end. size is that of the compressed form, for a guess.
func (u *unpacker) readAll(r io.Reader, size, limit int) ([]byte, error) {
	plain := u.buf[:0]
	if cap(plain) == 0 {
		plain = make([]byte, 0, min(max(2*size, 512), limit+1))
	}
	for {
		n, err := r.Read(plain[len(plain):min(cap(plain), limit+1)])
		plain = plain[:len(plain)+n]
		switch {
		case len(plain) > limit:
			return plain[:0], errBomb
		case err == io.EOF:
			return plain, nil
		case err != nil:
			return plain[:0], err
		}
		if len(plain) == cap(plain) {
			bigger := make([]byte, len(plain), min(2*cap(plain), limit+1))
			copy(bigger, plain)
			plain = bigger
		}
	}
}

// xerialMagic begins what the Xerial library frames: then follow two versions of 4
// bytes each, and blocks of snappy with a length of 4 bytes before each.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = 16
)

// snappy reads a bare block, too: some clients write that.
func (u *unpacker) snappy(src []byte, limit int) ([]byte, error) {
	size, err := snappyLen(src)
	if err != nil {
		return nil, err
	}
	if size > int64(limit) {
		return nil, errBomb
	}
	plain := slices.Grow(u.buf[:0], int(size))
	return xerial.DecodeCapped(plain, src)
}

// snappyLen adds up what src says that it decompresses to.
func snappyLen(src []byte) (total int64, err error) {
	if len(src) < xerialHeader || string(src[:len(xerialMagic)]) != xerialMagic {
		n, err := s2.DecodedLen(src)
		return int64(n), err
	}
	for rest := src[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return 0, fmt.Errorf("%d bytes follow the last block", len(rest))
		}
		n := int64(binary.BigEndian.Uint32(rest))
		if rest = rest[4:]; n > int64(len(rest)) || n > math.MaxInt32 {
			return 0, fmt.Errorf("a block of %d bytes, %d follow", n, len(rest))
		}
		size, err := s2.DecodedLen(rest[:n])
		if err != nil {
			return 0, err
		}
		total += int64(size)
		rest = rest[n:]
	}
	return total, nil
}
