package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
)

// OS returns the operating system's file system.
//
// Allocate relies on the file system below to keep what it reserves; those that
// write every change to a new place (ZFS, Btrfs with snapshots) cannot, and a full
// disk is then ErrFault from Mapping.Write. On Windows Allocate does not reserve,
// Map extends the file to the mapped size, and a mapped file cannot be truncated.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) openReadOnly(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flags int) (File, error) {
	f, err := os.OpenFile(filepath.FromSlash(name), flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, writable: flags&os.O_RDWR != 0, views: map[*osMapping]struct{}{}}, nil
}

func (osFS) Remove(name string) error    { return os.Remove(filepath.FromSlash(name)) }
func (osFS) RemoveAll(name string) error { return os.RemoveAll(filepath.FromSlash(name)) }

func (osFS) Rename(oldName, newName string) error {
	return os.Rename(filepath.FromSlash(oldName), filepath.FromSlash(newName))
}

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(filepath.FromSlash(dir), 0o755) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.FromSlash(dir))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Size(name string) (int64, error) {
	info, err := os.Stat(filepath.FromSlash(name))
	if err != nil {
		return 0, err
	}
	if info.IsDir() {
		return 0, &fs.PathError{Op: "size", Path: name, Err: syscall.EISDIR}
	}
	return info.Size(), nil
}

func (osFS) SyncDir(dir string) error { return syncDir(filepath.FromSlash(dir)) }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.FromSlash(name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// The lock belongs to this open file, so a second one of this process is
	// refused like one of another process.
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// osFile is an open file of the operating system.
type osFile struct {
	*os.File
	writable bool

	mu    sync.Mutex              // guards the fields below
	views map[*osMapping]struct{} // not unmapped yet
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Allocate(size int64) error {
	return f.control("allocate", func(fd uintptr) error { return allocate(f.File, fd, size) })
}

func (f *osFile) Sync() error {
	if !syncMapsNeeded {
		return f.control("sync", func(fd uintptr) error { return syncFile(f.File, fd) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	length, err := f.Size()
	if err != nil {
		return err
	}
	for view := range f.views {
		if err := syncMap(view.data[:min(int64(len(view.data)), length)]); err != nil {
			return &fs.PathError{Op: "sync", Path: f.Name(), Err: err}
		}
	}
	return f.control("sync", func(fd uintptr) error { return syncFile(f.File, fd) })
}

func (f *osFile) Map(size int64) (Mapping, error) {
	if size <= 0 || int64(int(size)) != size {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: syscall.EINVAL}
	}
	m := &osMapping{file: f}
	err := f.control("map", func(fd uintptr) (err error) {
		m.data, err = mapFile(fd, int(size), f.writable)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.views[m] = struct{}{}
	f.mu.Unlock()
	return m, nil
}

func (f *osFile) Adopt(mapping Mapping) {
	m := mapping.(*osMapping)
	m.file.mu.Lock()
	delete(m.file.views, m)
	m.file.mu.Unlock()
	m.file = f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views[m] = struct{}{}
}

// control calls do with the file's descriptor, which stays open meanwhile.
func (f *osFile) control(op string, do func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(fd) }); err != nil {
		// Control itself fails on a closed file only, with an error of its own.
		return &fs.PathError{Op: op, Path: f.Name(), Err: fs.ErrClosed}
	}
	if failed != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: failed}
	}
	return nil
}

// osMapping is a mapped file. The kernel keeps the file for it.
type osMapping struct {
	file *osFile
	data []byte // nil after Unmap
}

func (m *osMapping) Bytes() []byte { return m.data }

func (m *osMapping) Write(off int64, p []byte) (err error) {
	if off < 0 || off > int64(len(m.data)-len(p)) {
		return m.outside(off, len(p))
	}
	defer recoverFault(debug.SetPanicOnFault(true), &err)
	copy(m.data[off:], p)
	return nil
}

func (m *osMapping) WriteCall(off int64, p []byte) error {
	if !mapsAreCoherent {
		return m.Write(off, p)
	}
	if off < 0 || off > int64(len(m.data)-len(p)) {
		return m.outside(off, len(p))
	}
	_, err := m.file.WriteAt(p, off)
	if errors.Is(err, os.ErrClosed) {
		return m.Write(off, p) // the mapping outlives the file
	}
	return err
}

func (m *osMapping) outside(off int64, n int) error {
	return &fs.PathError{Op: "write", Path: m.file.Name(), Err: fmt.Errorf("%d bytes at %d lie outside a mapping of %d", n, off, len(m.data))}
}

func (m *osMapping) Populate(from, to int64) {
	from, to = max(from, 0), min(to, int64(len(m.data)))
	from -= from % int64(os.Getpagesize())
	if from < to {
		populate(m.data[from:to])
	}
}

func (m *osMapping) Unmap() error {
	m.file.mu.Lock()
	defer m.file.mu.Unlock()
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	delete(m.file.views, m)
	if err := unmapFile(data); err != nil {
		return &fs.PathError{Op: "unmap", Path: m.file.Name(), Err: err}
	}
	return nil
}
