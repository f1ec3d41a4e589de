package filesink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
)

// bufferBytes is how much of a file is collected before it is written.
const bufferBytes = 256 << 10

// sink writes the files of one sink partition. It is a stream.TxSink.
type sink[K, V any] struct {
	o   Options[K, V]
	dir string // of unfinished files, of this sink partition alone

	mu      sync.Mutex       // held across I/O: a timer finishes files between the calls of the job
	number  uint64           // of the newest manifest
	open    map[string]*file // by folder
	done    []move           // finished since the last Prepare
	created bool             // a file was, since the last Prepare
	dirty   bool             // something was written or finished since the last Prepare
	closed  bool
}

var _ stream.TxSink[string, string] = (*sink[string, string])(nil)

// file is an unfinished file.
type file struct {
	move
	f         vfs.File
	buf       []byte
	size      int64 // written, buf apart
	committed int64 // of it, counts
	since     time.Time
	timer     *time.Timer // nil where age does not matter
	old       bool        // it is to be finished as soon as all of it counts
}

func open[K, V any](o Options[K, V], p stream.SinkPartition) *sink[K, V] {
	return &sink[K, V]{o: o, dir: path.Join(o.Dir, unfinished, p.Job, p.Name, strconv.Itoa(p.Partition)), open: map[string]*file{}}
}

// Write implements stream.Sink.
func (s *sink[K, V]) Write(ctx context.Context, batch []stream.Output[K, V]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.add(r); err != nil {
			return err
		}
	}
	return nil
}

// add writes a record to the file of its folder.
func (s *sink[K, V]) add(r stream.Output[K, V]) error {
	folder := s.o.Folder(r)
	f := s.open[folder]
	if f == nil {
		if err := checkFolder(folder); err != nil {
			return err
		}
		line, err := s.o.Encode(nil, r)
		if err != nil || len(line) == 0 {
			return err
		}
		if f, err = s.create(folder, r); err != nil {
			return err
		}
		f.buf = append(append(f.buf, s.o.Header...), line...)
	} else {
		var err error
		if f.buf, err = s.o.Encode(f.buf, r); err != nil {
			return err
		}
	}
	s.dirty = true
	if f.size+int64(len(f.buf)) >= s.o.MaxBytes || f.old {
		return s.finished(folder, f)
	}
	if len(f.buf) >= bufferBytes {
		return f.flush()
	}
	return nil
}

// create begins a file, with r as its first record.
func (s *sink[K, V]) create(folder string, r stream.Output[K, V]) (*file, error) {
	if len(s.open) >= s.o.MaxOpen {
		oldest := ""
		for name, f := range s.open {
			if old := s.open[oldest]; old == nil || f.since.Before(old.since) {
				oldest = name
			}
		}
		if err := s.finished(oldest, s.open[oldest]); err != nil {
			return nil, err
		}
	}
	name := strings.ReplaceAll(r.ID, "/", "-") + s.o.Suffix
	opened, err := s.o.FS.Create(path.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	f := &file{move: move{Name: name, To: path.Join(folder, name)}, f: opened, since: time.Now()}
	s.open[folder], s.created = f, true
	s.watch(folder, f)
	return f, nil
}

// watch has the file finished when it is old.
func (s *sink[K, V]) watch(folder string, f *file) {
	if s.o.MaxAge < 0 {
		return
	}
	f.timer = time.AfterFunc(max(0, time.Until(f.since.Add(s.o.MaxAge))), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.old = true
		if s.closed || s.open[folder] != f || !f.counts() {
			return // the next Write, Prepare or Commit sees to it
		}
		if s.moveNow(folder, f) != nil {
			s.done, s.dirty = append(s.done, f.move), true
		}
	})
}

// counts tells whether all of the file is committed.
func (f *file) counts() bool { return f.committed == f.size && len(f.buf) == 0 }

// moveNow finishes a file all of which is committed. The manifest goes on to call it open,
// and being gone it counts as moved.
func (s *sink[K, V]) moveNow(folder string, f *file) error {
	if err := s.close(folder, f); err != nil {
		return err
	}
	return finish(s.o.FS, s.o.Dir, s.dir, f.move)
}

func (f *file) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	if _, err := f.f.WriteAt(f.buf, f.size); err != nil {
		return err
	}
	f.size += int64(len(f.buf))
	f.buf = f.buf[:0]
	return nil
}

// finished makes the file one that is moved to its place by the next commit.
func (s *sink[K, V]) finished(folder string, f *file) error {
	if err := f.flush(); err != nil {
		return err
	}
	if err := f.f.Sync(); err != nil {
		return err
	}
	if err := s.close(folder, f); err != nil {
		return err
	}
	s.done = append(s.done, f.move)
	return nil
}

func (s *sink[K, V]) close(folder string, f *file) error {
	if f.timer != nil {
		f.timer.Stop()
	}
	delete(s.open, folder)
	return f.f.Close()
}

// Prepare makes durable what was written, and says so in a manifest to be.
func (s *sink[K, V]) Prepare(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty {
		return nil, nil
	}
	m := manifest{Version: manifestVersion, Number: s.number + 1}
	for folder, f := range s.open {
		switch {
		case f.old:
			if err := s.finished(folder, f); err != nil {
				return nil, err
			}
			continue
		case f.size > f.committed || len(f.buf) > 0:
			if err := f.flush(); err != nil {
				return nil, err
			}
			if err := f.f.Sync(); err != nil {
				return nil, err
			}
		}
		m.Open = append(m.Open, written{f.move, f.size, f.since.UnixMilli()})
	}
	if s.created {
		if err := s.o.FS.SyncDir(s.dir); err != nil {
			return nil, err
		}
	}
	m.Done, s.done = s.done, nil
	s.created, s.dirty = false, false
	slices.SortFunc(m.Open, func(a, b written) int { return strings.Compare(a.Name, b.Name) })
	return json.Marshal(m)
}

// Commit makes the handle the manifest, and moves what it says is finished.
func (s *sink[K, V]) Commit(_ context.Context, handle []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := decodeManifest(handle)
	if err != nil {
		return err
	}
	now, err := readManifest(s.o.FS, s.dir)
	if err != nil {
		return err
	}
	if m.Number > now.Number {
		if err := writeManifest(s.o.FS, s.dir, handle); err != nil {
			return err
		}
		s.number = m.Number
	}
	for _, d := range m.Done {
		if err := finish(s.o.FS, s.o.Dir, s.dir, d); err != nil {
			return err
		}
	}
	for _, w := range m.Open {
		for folder, f := range s.open {
			if f.Name != w.Name {
				continue
			}
			f.committed = max(f.committed, w.Bytes)
			if f.old && f.counts() {
				if err := s.moveNow(folder, f); err != nil {
					s.done, s.dirty = append(s.done, f.move), true
				}
			}
		}
	}
	return nil
}

// Abort goes back to what the manifest says.
func (s *sink[K, V]) Abort(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for folder, f := range s.open {
		_ = s.close(folder, f) // what it has does not count
	}
	s.done, s.created, s.dirty = nil, false, false
	if err := vfs.MkdirAllDurable(s.o.FS, s.dir); err != nil {
		return err
	}
	m, err := readManifest(s.o.FS, s.dir)
	if err != nil {
		return err
	}
	s.number = m.Number
	for _, d := range m.Done {
		if err := finish(s.o.FS, s.o.Dir, s.dir, d); err != nil {
			return err
		}
	}
	names, err := s.o.FS.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == manifestName || slices.ContainsFunc(m.Open, func(w written) bool { return w.Name == name }) {
			continue
		}
		if err := s.o.FS.Remove(path.Join(s.dir, name)); err != nil {
			return err
		}
	}
	for _, w := range m.Open {
		if err := s.reopen(w); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens a file where the manifest says it ends. One that is gone had been finished.
func (s *sink[K, V]) reopen(w written) error {
	f, err := s.o.FS.Open(path.Join(s.dir, w.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && size < w.Bytes {
		err = fmt.Errorf("filesink: %s has %d bytes; the manifest counts %d", path.Join(s.dir, w.Name), size, w.Bytes)
	}
	if err == nil && size > w.Bytes {
		err = f.Truncate(w.Bytes)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	folder := path.Dir(w.To)
	if folder == "." {
		folder = ""
	}
	opened := &file{move: w.move, f: f, size: w.Bytes, committed: w.Bytes, since: time.UnixMilli(w.Since)}
	s.open[folder] = opened
	s.watch(folder, opened)
	return nil
}

// Close finishes the files all of which counts. The others the next run goes on with.
func (s *sink[K, V]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for folder, f := range s.open {
		if f.counts() {
			errs = append(errs, s.moveNow(folder, f))
		} else {
			errs = append(errs, s.close(folder, f))
		}
	}
	return errors.Join(errs...)
}
