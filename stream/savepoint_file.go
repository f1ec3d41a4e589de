package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
)

// SaveTo is WriteSavepoint to a file, which is there as a whole and on the disk when it
// returns, or not at all. A file that is there is replaced. What a crash leaves behind is beside it, in
// a file that ends in ".part", and is replaced by the next savepoint of the job under that name.
// Calls of one job wait for each other.
func (j *Job) SaveTo(ctx context.Context, name string) (checkpoint.ID, error) {
	j.saving.Lock()
	defer j.saving.Unlock()
	files, name := j.run.env.Files, filepath.ToSlash(name)
	if files == nil {
		files = vfs.OS()
	}
	part := name + "." + j.app.name + ".part"
	id, err := j.saveTo(ctx, files, part)
	if err != nil {
		return id, err
	}
	if err = files.Rename(part, name); err != nil {
		err = errors.Join(err, files.Remove(part))
	} else {
		err = files.SyncDir(path.Dir(name))
	}
	if err != nil {
		return id, fmt.Errorf("stream: job %q: write a savepoint: %w", j.app.name, err)
	}
	return id, nil
}

// saveTo writes a savepoint to a file that is on the disk when it returns, or removed.
func (j *Job) saveTo(ctx context.Context, files vfs.FS, name string) (id checkpoint.ID, err error) {
	f, err := files.Create(name)
	if err != nil {
		return id, fmt.Errorf("stream: job %q: write a savepoint: %w", j.app.name, err)
	}
	w := bufio.NewWriterSize(&appendingTo{f: f}, 1<<20)
	if id, err = j.WriteSavepoint(ctx, w); err == nil {
		if err = errors.Join(w.Flush(), f.Sync()); err != nil {
			err = fmt.Errorf("stream: job %q: write a savepoint: %w", j.app.name, err)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, files.Remove(name))
	}
	return id, err
}

// appendingTo writes to a file, one piece behind the other.
type appendingTo struct {
	f    vfs.File
	size int64
}

func (a *appendingTo) Write(p []byte) (int, error) {
	n, err := a.f.WriteAt(p, a.size)
	a.size += int64(n)
	return n, err
}
