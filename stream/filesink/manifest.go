package filesink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/thalweg/thalweg/internal/vfs"
)

// manifest says what of the unfinished files counts. It is the handle of a checkpoint, and,
// once that is complete, a file: replaced as a whole, JSON as it stands here.
//
// Invariant: a file that is in no manifest, and bytes of one beyond what the manifest says,
// do not count.
type manifest struct {
	Version int       `json:"version"` // 1
	Number  uint64    `json:"number"`  // grows from commit to commit
	Done    []move    `json:"done,omitempty"`
	Open    []written `json:"open,omitempty"`
}

// move is a finished file that goes to its place. One that is not there any more has gone:
// a rename is whole, and readers may do with finished files what they like.
type move struct {
	Name string `json:"name"` // below the partition's folder of unfinished files
	To   string `json:"to"`   // below Dir
}

// written is a file that is being written, or has been moved since.
type written struct {
	move
	Bytes int64 `json:"bytes"` // that count
	Since int64 `json:"since"` // of its first record, by the clock: ms since the epoch
}

const (
	manifestVersion = 1
	manifestName    = "manifest"
	manifestNext    = "manifest.next"
	unfinished      = ".thalweg"
)

func decodeManifest(b []byte) (m manifest, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("filesink: manifest: %w", err)
	}
	if m.Version != manifestVersion {
		return m, fmt.Errorf("filesink: manifest of version %d; this program knows %d", m.Version, manifestVersion)
	}
	return m, nil
}

// readManifest reads the manifest in dir; one that is missing is empty.
func readManifest(files vfs.FS, dir string) (m manifest, err error) {
	b, err := readFile(files, path.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return manifest{Version: manifestVersion}, nil
	}
	if err != nil {
		return m, err
	}
	return decodeManifest(b)
}

// writeManifest replaces the manifest in dir, durably.
func writeManifest(files vfs.FS, dir string, b []byte) error {
	next := path.Join(dir, manifestNext)
	f, err := files.Create(next)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := files.Rename(next, path.Join(dir, manifestName)); err != nil {
		return err
	}
	return files.SyncDir(dir)
}

func readFile(files vfs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	if size == 0 {
		return nil, fmt.Errorf("filesink: %s is empty", name)
	}
	return b, err
}

// exists tells whether a file is there.
func exists(files vfs.FS, name string) (bool, error) {
	_, err := files.Size(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// finish moves a finished file to its place. It may be repeated.
func finish(files vfs.FS, dir, unfinished string, m move) error {
	from, to := path.Join(unfinished, m.Name), path.Join(dir, m.To)
	there, err := exists(files, from)
	if err != nil {
		return err
	}
	folder := path.Dir(to)
	if there {
		if err := files.MkdirAll(folder); err != nil {
			return err
		}
		// The folder comes first, or a power cut could keep the move and not the folder: every
		// level of it, since a run before may have made it and ended before it was synced.
		for level := folder; level != dir; {
			level = path.Dir(level)
			if err := files.SyncDir(level); err != nil {
				return err
			}
		}
		if err := files.Rename(from, to); err != nil {
			return err
		}
	}
	if err := files.SyncDir(folder); err != nil && (there || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	return nil
}
