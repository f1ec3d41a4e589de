package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// memFile is an open file of a Mem. Its fields besides node and name are guarded
// by Mem.mu.
type memFile struct {
	mem    *Mem
	node   *memNode
	name   string
	closed bool
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// usableLocked says why the file cannot be used, if so.
func (f *memFile) usableLocked() error {
	if f.mem.stopped {
		return ErrStopped
	}
	if f.closed {
		return fs.ErrClosed
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return 0, f.fail("read", err)
	}
	if off < 0 {
		return 0, f.fail("read", syscall.EINVAL)
	}
	if len(p) == 0 {
		return 0, nil
	}
	n := f.node.image.read(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.fail("write", syscall.EINVAL)
	}
	part, stop, err := f.mem.beginWrite(Op{Kind: OpWrite, Name: f.name, Offset: off, Length: int64(len(p))})
	if err != nil {
		return 0, err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return 0, f.fail("write", err)
	}
	fits := f.mem.reserveLocked(f.node, off, part)
	f.node.image.write(p[:fits], off)
	if stop {
		f.mem.stopped = true
		return int(fits), f.fail("write", ErrStopped)
	}
	if fits < part {
		return int(fits), f.fail("write", syscall.ENOSPC)
	}
	return int(fits), nil
}

func (f *memFile) Close() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.closed {
		return f.fail("close", fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return 0, f.fail("size", err)
	}
	return f.node.image.length, nil
}

func (f *memFile) Allocate(size int64) error {
	return f.mem.do(Op{Kind: OpAllocate, Name: f.name, Length: size}, func() error {
		if err := f.usableLocked(); err != nil {
			return err
		}
		if !f.mem.fitsLocked(f.node, size) {
			return syscall.ENOSPC
		}
		f.mem.reserveLocked(f.node, 0, size)
		f.node.image.length = max(f.node.image.length, size)
		return nil
	})
}

func (f *memFile) Truncate(size int64) error {
	if size < 0 {
		return f.fail("truncate", syscall.EINVAL)
	}
	return f.mem.do(Op{Kind: OpTruncate, Name: f.name, Length: size}, func() error {
		if err := f.usableLocked(); err != nil {
			return err
		}
		f.mem.truncateLocked(f.node, size)
		return nil
	})
}

func (f *memFile) Sync() error {
	err := f.mem.do(Op{Kind: OpSync, Name: f.name}, func() error {
		if err := f.usableLocked(); err != nil {
			return err
		}
		f.node.image.sync()
		return nil
	})
	if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, fs.ErrClosed) {
		f.mem.mu.Lock()
		defer f.mem.mu.Unlock()
		f.node.image.syncFailed()
	}
	return err
}

func (f *memFile) Map(size int64) (Mapping, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return nil, f.fail("map", err)
	}
	if size <= 0 || int64(int(size)) != size {
		return nil, f.fail("map", syscall.EINVAL)
	}
	m := &memMapping{mem: f.mem, node: f.node, name: f.name, data: f.node.image.view(size)}
	f.node.image.views[m] = struct{}{}
	return m, nil
}

func (f *memFile) Adopt(mapping Mapping) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	mapping.(*memMapping).name = f.name
}

// memMapping is a mapped file of a Mem.
type memMapping struct {
	mem  *Mem
	node *memNode
	name string // of the file that made or adopted it
	data []byte // nil after Unmap; written under Mem.mu only
}

func (m *memMapping) Bytes() []byte { return m.data }

func (m *memMapping) Write(off int64, p []byte) error {
	if off < 0 || off > int64(len(m.data)-len(p)) {
		return m.fail(fmt.Errorf("%d bytes at %d lie outside a mapping of %d", len(p), off, len(m.data)))
	}
	part, stop, err := m.mem.beginWrite(Op{Kind: OpMappedWrite, Name: m.name, Offset: off, Length: int64(len(p))})
	if err != nil {
		return err
	}
	m.mem.mu.Lock()
	defer m.mem.mu.Unlock()
	if err := m.writeLocked(off, p[:part]); err != nil {
		return err
	}
	if stop {
		m.mem.stopped = true
		return m.fail(ErrStopped)
	}
	return nil
}

func (m *memMapping) WriteCall(off int64, p []byte) error { return m.Write(off, p) }

func (m *memMapping) writeLocked(off int64, p []byte) error {
	image := m.node.image
	if m.mem.stopped {
		return m.fail(ErrStopped)
	}
	if len(p) == 0 {
		return nil
	}
	// As with real pages: what lies past the end of the file faults, except in
	// the page that holds the end, where it is lost.
	if off+int64(len(p)) > pageEnd(image.length) {
		return m.fail(fmt.Errorf("%w: %d bytes at %d, the file has %d", ErrFault, len(p), off, image.length))
	}
	p = p[:max(0, min(int64(len(p)), image.length-off))]
	fits := m.mem.reserveLocked(m.node, off, int64(len(p)))
	image.write(p[:fits], off)
	if fits < int64(len(p)) {
		return m.fail(fmt.Errorf("%w: %w", ErrFault, syscall.ENOSPC))
	}
	return nil
}

func (m *memMapping) fail(err error) error {
	return &fs.PathError{Op: "write", Path: m.name, Err: err}
}

func (m *memMapping) Populate(from, to int64) {}

func (m *memMapping) Unmap() error {
	m.mem.mu.Lock()
	defer m.mem.mu.Unlock()
	delete(m.node.image.views, m)
	m.data = nil
	return nil
}
