package vfs

import "io"

// FS is a file system. Names are slash-separated paths. Its methods may be
// called concurrently.
type FS interface {
	// Create makes name, or empties it where it exists, for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing. A missing one is
	// an error matching fs.ErrNotExist.
	Open(name string) (File, error)
	// Remove deletes one file or empty directory.
	Remove(name string) error
	// RemoveAll deletes name and all below it; a missing name is no error.
	RemoveAll(name string) error
	// Rename replaces newName by oldName. It is durable only after SyncDir.
	Rename(oldName, newName string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(dir string) error
	// List returns the names (not paths) in dir, sorted.
	List(dir string) ([]string, error)
	// Size returns a file's length in bytes.
	Size(name string) (int64, error)
	// SyncDir makes the creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on name, creating it. A lock that another
	// process (or another caller in this one) holds is ErrLocked. Closing the
	// result releases it; so does the end of the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// Allocate reserves disk space so that the file is at least size bytes
	// long and writing below size cannot run out of disk. It zero-fills.
	Allocate(size int64) error
	// Truncate cuts or extends the file to size bytes.
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable (fdatasync).
	Sync() error
	// Map maps the first size bytes for reading and writing. size may exceed
	// the file's present length; only allocated bytes may be touched.
	Map(size int64) (Mapping, error)
	// Adopt makes m, a mapping of this very file that another descriptor made and
	// nobody uses at the moment, a mapping of this descriptor: WriteCall goes
	// through it, and Sync covers what was written.
	Adopt(m Mapping)
}

// Mapping is a mapped file. It stays valid after the file is closed.
type Mapping interface {
	// Bytes is the mapped memory, valid until Unmap. Callers only read it.
	Bytes() []byte
	// Write copies p to offset off. A page fault is returned as an error.
	Write(off int64, p []byte) error
	// WriteCall does the same through a call of the system, where that keeps one
	// copy of a page for both ways. For more than a page or two it is quicker: no
	// page has to be mapped for it, nor unmapped when the system writes it back.
	WriteCall(off int64, p []byte) error
	// Populate makes the pages of [from, to) present ahead of use, as far as the
	// platform can; it is a hint and never fails.
	Populate(from, to int64)
	Unmap() error
}
