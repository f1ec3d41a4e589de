package thalweg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A node's directory:
//
//	LOCK     held while the node is open; empty
//	FORMAT   one line, "thalweg 1": what wrote the directory, and its format
//	log/     the log plane: every topic, changelog and the metadata log
//	state/   the stores of stateful steps, by job and step
//
// FORMAT is written before log and state exist, so a directory that has files
// but no FORMAT is not a node's and is left alone.
const (
	lockFile      = "LOCK"
	formatFile    = "FORMAT"
	newFormatFile = "FORMAT.new" // renamed to FORMAT once it is whole
	logFolder     = "log"
	stateFolder   = "state"

	formatName    = "thalweg"
	formatVersion = 1
	maxFormatSize = 256 // bytes; a longer file is not ours
)

// openDirectory makes dir where it is missing, takes its lock and checks its
// format. The result releases the lock. A directory that is refused is left as
// it was, apart from an empty LOCK.
func openDirectory(fsys vfs.FS, dir string) (io.Closer, error) {
	if err := vfs.MkdirAllDurable(fsys, dir); err != nil {
		return nil, fmt.Errorf("thalweg: make directory %s: %w", dir, err)
	}
	if err := refuseStranger(fsys, dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(path.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s is open in this or another process: close the node there, or give this one a directory of its own", ErrLocked, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("thalweg: lock directory %s: %w", dir, err)
	}
	if err := checkFormat(fsys, dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// refuseStranger returns an error when dir holds files of somebody else.
func refuseStranger(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("thalweg: read directory %s: %w", dir, err)
	}
	var stranger string
	for _, name := range names {
		switch name {
		case formatFile:
			return nil
		case lockFile, newFormatFile, "lost+found":
		default:
			stranger = name
		}
	}
	if stranger == "" {
		return nil
	}
	return fmt.Errorf("%w: %s holds %s but no %s, so no node wrote it: give the node a directory of its own", ErrFormat, dir, stranger, formatFile)
}

// checkFormat reads FORMAT, or writes it into a directory that is new.
func checkFormat(fsys vfs.FS, dir string) error {
	text, err := readSmallFile(fsys, path.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return writeFormat(fsys, dir)
	}
	if err != nil {
		return fmt.Errorf("thalweg: read format of %s: %w", dir, err)
	}
	name, version, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	n, err := strconv.Atoi(version)
	switch {
	case name != formatName || err != nil || n < 1:
		return fmt.Errorf("%w: %s/%s says %q, not %q: it is damaged or no node wrote it", ErrFormat, dir, formatFile, text, formatLine())
	case n > formatVersion:
		return fmt.Errorf("%w: %s was written in format %d and this version knows up to %d: use a newer version of the library", ErrFormat, dir, n, formatVersion)
	}
	return nil
}

func formatLine() string { return fmt.Sprintf("%s %d\n", formatName, formatVersion) }

// writeFormat puts FORMAT in place whole or not at all.
func writeFormat(fsys vfs.FS, dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("thalweg: write format of %s: %w", dir, err)
		}
	}()
	f, err := fsys.Create(path.Join(dir, newFormatFile))
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(formatLine()), 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.Rename(path.Join(dir, newFormatFile), path.Join(dir, formatFile)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func readSmallFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(size, maxFormatSize))
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.Clone(text[:n]), nil
}
