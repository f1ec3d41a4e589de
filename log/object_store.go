package log

import (
	"context"
	"errors"
	"io"
)

// ObjectStore keeps sealed segments of topics with Remote set outside of the log's
// directory. Names have slashes between their parts and are made of letters, digits,
// '.', '_', '-' and '+'. An object never changes under its name, and has one writer.
//
// Its methods may be called concurrently. storetest.Run tells whether an
// implementation is one.
type ObjectStore interface {
	// Put stores size bytes of content under name, all of them or none, durable on
	// return. An object of that name is replaced. After an error it may be there or
	// not. content is read from where it stands, again after a Seek where needed.
	Put(ctx context.Context, name string, content io.ReadSeeker, size int64) error

	// ReadAt fills p with the object's bytes from off on. Fewer, with io.EOF, are
	// there only at its end. A missing object is an error matching fs.ErrNotExist.
	ReadAt(ctx context.Context, name string, p []byte, off int64) (n int, err error)

	// Delete removes an object. A missing one is no error.
	Delete(ctx context.Context, name string) error

	// List returns the names that begin with prefix, in any order.
	List(ctx context.Context, prefix string) ([]string, error)
}

// ErrRemote is matched by the error for what the object store did not do. Trying again
// may help.
var ErrRemote = errors.New("log: object store")
