package vfs

import (
	"errors"
	"io/fs"
	"path"
)

// MkdirAllDurable is FS.MkdirAll followed by SyncDir of every directory that got
// a new entry, and of dir's parent in any case: that dir exists may be the doing
// of a process that was killed before it could sync.
func MkdirAllDurable(fsys FS, dir string) error {
	dir = path.Clean(dir)
	parents := []string{path.Dir(dir)}
	for missing := dir; ; missing = path.Dir(missing) {
		if _, err := fsys.List(missing); !errors.Is(err, fs.ErrNotExist) || missing == path.Dir(missing) {
			break
		}
		if parent := path.Dir(missing); parent != parents[len(parents)-1] {
			parents = append(parents, parent)
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for i, parent := range parents {
		err := fsys.SyncDir(parent)
		// A parent that may be passed but not read never got its entry from us.
		if err != nil && !(i == 0 && len(parents) == 1 && errors.Is(err, fs.ErrPermission)) {
			return err
		}
	}
	return nil
}
