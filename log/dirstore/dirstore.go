// Package dirstore is an object store in a directory: of another disk, say, or of a
// file system that is mounted from elsewhere.
//
// An object is a file below the directory, written under a name that is none of an
// object's and renamed once it is synced. A crash leaves such a file behind; Open
// removes it.
package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

// partialSuffix ends the name of a file that is being written. '~' is in no object's
// name.
const partialSuffix = "~"

// pieceBytes is how much is written at once.
const pieceBytes = 1 << 20

// Store is a log.ObjectStore in a directory.
type Store struct {
	fs  vfs.FS
	dir string

	mu     sync.Mutex // guards serial
	serial int
}

var _ log.ObjectStore = (*Store)(nil)

// Open returns the store in dir, which it creates. A directory has one Store at a time.
func Open(dir string) (*Store, error) { return OpenOn(vfs.OS(), filepath.ToSlash(dir)) }

// OpenOn is Open on another file system, for tests.
func OpenOn(files vfs.FS, dir string) (*Store, error) {
	if err := vfs.MkdirAllDurable(files, dir); err != nil {
		return nil, fmt.Errorf("dirstore: open %s: %w", dir, err)
	}
	s := &Store{fs: files, dir: dir}
	partial, err := s.walk("", func(name string) bool { return strings.HasSuffix(name, partialSuffix) })
	for _, name := range partial {
		err = errors.Join(err, files.Remove(path.Join(dir, name)))
	}
	if err != nil {
		return nil, fmt.Errorf("dirstore: open %s: %w", dir, err)
	}
	return s, nil
}

// Put implements log.ObjectStore.
func (s *Store) Put(ctx context.Context, name string, content io.ReadSeeker, size int64) error {
	target := path.Join(s.dir, name)
	if err := vfs.MkdirAllDurable(s.fs, path.Dir(target)); err != nil {
		return err
	}
	s.mu.Lock()
	s.serial++
	partial := fmt.Sprintf("%s.%d%s", target, s.serial, partialSuffix)
	s.mu.Unlock()
	err := s.write(ctx, partial, content, size)
	if err == nil {
		err = s.fs.Rename(partial, target)
	}
	if err != nil {
		if removeErr := s.fs.Remove(partial); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
		return err
	}
	return s.fs.SyncDir(path.Dir(target))
}

// write makes a file of size bytes of content, on disk.
func (s *Store) write(ctx context.Context, name string, content io.Reader, size int64) error {
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	piece := make([]byte, min(size, pieceBytes))
	for at := int64(0); at < size && err == nil; {
		n := min(size-at, pieceBytes)
		if _, err = io.ReadFull(content, piece[:n]); err == nil {
			_, err = f.WriteAt(piece[:n], at)
		}
		if err == nil {
			err = ctx.Err()
		}
		at += n
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadAt implements log.ObjectStore.
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	f, err := s.fs.Open(path.Join(s.dir, name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

// Delete implements log.ObjectStore. Directories stay, empty.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.fs.Remove(path.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.fs.SyncDir(path.Dir(path.Join(s.dir, name)))
}

// List implements log.ObjectStore.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.walk(prefix, func(name string) bool { return !strings.HasSuffix(name, partialSuffix) })
}

// walk returns the files whose names begin with prefix and are wanted.
func (s *Store) walk(prefix string, wanted func(name string) bool) (found []string, err error) {
	var visit func(dir string) error
	visit = func(dir string) error {
		names, err := s.fs.List(path.Join(s.dir, dir))
		if err != nil {
			return err
		}
		for _, name := range names {
			name = path.Join(dir, name)
			if !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name+"/") {
				continue
			}
			if _, err := s.fs.List(path.Join(s.dir, name)); err == nil {
				if err := visit(name); err != nil {
					return err
				}
			} else if strings.HasPrefix(name, prefix) && wanted(name) {
				found = append(found, name)
			}
		}
		return nil
	}
	err = visit("")
	return found, err
}
