package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/thalweg/thalweg/internal/vfs"
)

// maxSmallFileBytes bounds what is read into memory at once: registry,
// checkpoints, indexes and snapshots. A file larger than that is none of ours.
const maxSmallFileBytes = 1 << 30

// readSmallFile reads a whole file.
func readSmallFile(files vfs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSmallFileBytes {
		return nil, &CorruptionError{File: name, Offset: -1, Cause: fmt.Errorf("it has %d bytes, at most %d are plausible", size, maxSmallFileBytes)}
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(err == io.EOF && n == len(b)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// writeCacheFile writes a file that can be rebuilt: it is not synced, and whoever
// reads it recognises a torn one.
func writeCacheFile(files vfs.FS, name string, b []byte) error {
	f, err := files.Create(name)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			f.Close()
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return f.Close()
}

// replaceFile writes name so that after a crash it is either the old or the new
// file, and when replaceFile has returned the new one.
func replaceFile(files vfs.FS, name string, b []byte) error {
	temporary := name + temporarySuffix
	f, err := files.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = files.Rename(temporary, name)
	}
	if err == nil {
		err = files.SyncDir(path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// removeIfPresent removes a file; a missing one is no error.
func removeIfPresent(files vfs.FS, name string) error {
	if err := files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
