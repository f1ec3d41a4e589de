package log

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/internal/vfs"
)

// A segment is open while its file is mapped, and a descriptor of it is there too where
// it is written. Whoever uses either holds a pin, and pinning opens a segment that is
// closed. Of those without pins, the ones that nobody needed for longest are closed when
// others are to be opened, see openSegments.
//
//	closed ──pin──▶ in use ──last unpin──▶ idle ──pin──▶ in use
//	   ▲                                     │
//	   └────────────────close────────────────┘
//
// A segment that is dropped from the log is closed with the last pin, for good.

// closed is the number of pins of a segment that is not open.
const closed = -1

// errDropped is for who pins a segment that is not part of the log any more.
var errDropped = errors.New("the segment was dropped")

// pin keeps the segment open until unpin.
func (s *segment) pin() error {
	for {
		n := s.pins.Load()
		if n == closed {
			return s.open()
		}
		if s.pins.CompareAndSwap(n, n+1) {
			if !s.used.Load() {
				s.used.Store(true)
			}
			return nil
		}
	}
}

func (s *segment) unpin() {
	if s.pins.Add(-1) > 0 {
		return
	}
	switch {
	case s.dropped.Load():
		_ = s.drop() // nobody is there whom its error would help
	case s.bound != nil && s.bound.exceeded.Load():
		s.bound.trim()
	}
}

// open opens the segment and pins it.
func (s *segment) open() error {
	s.bound.acquire()
	s.openMu.Lock()
	defer s.openMu.Unlock()
	err := errDropped
	if !s.dropped.Load() {
		if s.pins.Load() != closed {
			s.bound.release() // somebody else was faster
			s.pins.Add(1)
			return nil
		}
		err = s.openLocked()
	}
	if err != nil {
		s.bound.release()
		return err
	}
	s.opened(1)
	return nil
}

// opened makes what was counted and attached ready for use.
func (s *segment) opened(pins int64) {
	s.used.Store(true)
	s.bound.add(s)
	s.pins.Store(pins)
}

func (s *segment) openLocked() error {
	name := s.name(s.suffix)
	file, err := s.fs.Open(name)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	size, err := file.Size()
	if err == nil && size < s.end.Load() {
		err = &CorruptionError{File: name, Position: size, Offset: -1,
			Cause: fmt.Errorf("it has %d bytes, and had %d before it was closed", size, s.end.Load())}
	}
	if err == nil {
		err = s.attach(file)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	// What the system did to its pages meanwhile is not known.
	s.warm, s.populated = false, 0
	if !s.writable.Load() {
		return s.closeFileLocked()
	}
	return nil
}

// attach maps a file, which becomes the segment's.
func (s *segment) attach(file vfs.File) (err error) {
	if s.capacity > 0 {
		if s.mapping, err = file.Map(s.capacity); err != nil {
			return fmt.Errorf("map %s: %w", s.name(logSuffix), err)
		}
		s.data = s.mapping.Bytes()
	}
	s.file = file
	return nil
}

// close lets go of mapping and descriptor if nobody uses them, once all is durable: the
// system tells of a write that fails only those who have the file open.
func (s *segment) close() {
	// Somebody who opens or drops it has the lock, and may wait for others.
	if !s.openMu.TryLock() {
		return
	}
	defer s.openMu.Unlock()
	if !s.pins.CompareAndSwap(0, closed) {
		return
	}
	if err := s.settlePinned(); err != nil {
		_ = s.failed(err)
	}
	_ = s.letGoLocked() // it is durable, or cannot be
}

// letGoLocked closes an open segment whose pins are closed.
func (s *segment) letGoLocked() error {
	err := s.closeFileLocked()
	if s.mapping != nil {
		err = errors.Join(err, s.mapping.Unmap())
		s.mapping, s.data = nil, nil
	}
	s.bound.remove(s)
	s.bound.release()
	return err
}

// drop closes the segment for good, at once or with its last pin. Its descriptor goes
// at once: nobody writes it any more.
func (s *segment) drop() error {
	s.dropped.Store(true)
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.pins.CompareAndSwap(0, closed) {
		return s.letGoLocked()
	}
	return s.closeFileLocked()
}

// finish says that the segment is not written any more.
func (s *segment) finish() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.writable.Store(false)
	return s.closeFileLocked()
}

// closeFileLocked closes the descriptor. The mapping stays.
func (s *segment) closeFileLocked() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// isSynced tells whether all that was written is durable.
func (s *segment) isSynced() bool { return s.synced.Load() >= s.end.Load() }

// sync makes durable what is written when it begins. A segment that has something to
// sync is open.
func (s *segment) sync() error {
	if s.isSynced() {
		return nil
	}
	if err := s.pin(); err != nil {
		return err
	}
	defer s.unpin()
	return s.syncPinned()
}

// syncPinned does not sync after a sync that failed, whoever asked for that: the system may
// have let go of what it could not write, and say then that all is well, the more so
// where the file was closed and opened again.
func (s *segment) syncPinned() error {
	if failed := s.lost.Load(); failed != nil {
		return *failed
	}
	end := s.end.Load()
	if err := s.file.Sync(); err != nil {
		err = fmt.Errorf("sync %s: %w", s.name(logSuffix), err)
		s.lost.Store(&err)
		return err
	}
	s.synced.Store(max(end, s.synced.Load()))
	return nil
}

// settle makes a segment durable, and cuts it to its end when it is sealed: other tools
// expect it to end with its last batch.
func (s *segment) settle() error {
	if s.isSynced() && s.cut.Load() {
		return nil
	}
	if err := s.pin(); err != nil {
		if s.isSynced() {
			return nil // the next opening cuts it
		}
		return err
	}
	defer s.unpin()
	return s.settlePinned()
}

func (s *segment) settlePinned() error {
	switch {
	case !s.writable.Load():
		return nil
	case s.sealed.Load() && !s.cut.Load():
		if err := s.file.Truncate(s.end.Load()); err != nil {
			return fmt.Errorf("cut %s to its end: %w", s.name(logSuffix), err)
		}
		if err := s.syncPinned(); err != nil {
			return err
		}
		s.cut.Store(true)
		return nil
	case s.isSynced():
		return nil
	}
	return s.syncPinned()
}
