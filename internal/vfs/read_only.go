package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrReadOnly is the error of whatever would change a file system from ReadOnly.
var ErrReadOnly = errors.New("vfs: open for reading only")

// ReadOnly returns files as seen by who may only read: it opens files without asking
// for permission to write, maps them without write access, and changes nothing.
func ReadOnly(files FS) FS { return readOnlyFS{files} }

type readOnlyFS struct{ files FS }

// readOnlyOpener is an FS that can open files without permission to write.
type readOnlyOpener interface {
	openReadOnly(name string) (File, error)
}

func refuse(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: ErrReadOnly} }

func (r readOnlyFS) Open(name string) (File, error) {
	open := r.files.Open
	if o, ok := r.files.(readOnlyOpener); ok {
		open = o.openReadOnly
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f, name}, nil
}

func (r readOnlyFS) List(dir string) ([]string, error) { return r.files.List(dir) }
func (r readOnlyFS) Size(name string) (int64, error)   { return r.files.Size(name) }
func (readOnlyFS) Create(name string) (File, error)    { return nil, refuse("create", name) }
func (readOnlyFS) Remove(name string) error            { return refuse("remove", name) }
func (readOnlyFS) RemoveAll(name string) error         { return refuse("remove", name) }
func (readOnlyFS) Rename(oldName, _ string) error      { return refuse("rename", oldName) }
func (readOnlyFS) MkdirAll(dir string) error           { return refuse("mkdir", dir) }
func (readOnlyFS) SyncDir(dir string) error            { return refuse("sync", dir) }
func (readOnlyFS) Lock(name string) (io.Closer, error) { return nil, refuse("lock", name) }

type readOnlyFile struct {
	File
	name string
}

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, refuse("write", f.name) }
func (f readOnlyFile) Allocate(int64) error               { return refuse("allocate", f.name) }
func (f readOnlyFile) Truncate(int64) error               { return refuse("truncate", f.name) }
func (f readOnlyFile) Sync() error                        { return refuse("sync", f.name) }

func (f readOnlyFile) Map(size int64) (Mapping, error) {
	m, err := f.File.Map(size)
	if err != nil {
		return nil, err
	}
	return readOnlyMapping{m, f.name}, nil
}

type readOnlyMapping struct {
	Mapping
	name string
}

func (m readOnlyMapping) Write(int64, []byte) error     { return refuse("write", m.name) }
func (m readOnlyMapping) WriteCall(int64, []byte) error { return refuse("write", m.name) }
func (m readOnlyMapping) Populate(int64, int64)         {}
