package vfs

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrStopped is returned by every operation of a Mem that was stopped.
var ErrStopped = errors.New("vfs: stopped")

// OpKind is a kind of operation that changes a file system.
type OpKind uint8

const (
	OpCreate OpKind = iota + 1
	OpWrite
	OpMappedWrite
	OpAllocate
	OpTruncate
	OpSync
	OpSyncDir
	OpRename
	OpRemove
	OpMkdir
)

var opNames = [...]string{
	OpCreate: "create", OpWrite: "write", OpMappedWrite: "mapped write", OpAllocate: "allocate", OpTruncate: "truncate",
	OpSync: "sync", OpSyncDir: "sync directory", OpRename: "rename", OpRemove: "remove", OpMkdir: "mkdir",
}

func (k OpKind) String() string {
	if int(k) < len(opNames) && opNames[k] != "" {
		return opNames[k]
	}
	return fmt.Sprintf("op %d", uint8(k))
}

// Op is an operation about to be done.
type Op struct {
	N       int64 // its number, from 1
	Kind    OpKind
	Name    string
	NewName string // of a rename
	Offset  int64  // of a write
	Length  int64  // bytes of a write; the new length of allocate and truncate
}

func (o Op) String() string {
	s := fmt.Sprintf("%d: %s %s", o.N, o.Kind, o.Name)
	switch o.Kind {
	case OpRename:
		return s + " to " + o.NewName
	case OpWrite, OpMappedWrite:
		return fmt.Sprintf("%s [%d, %d)", s, o.Offset, o.Offset+o.Length)
	case OpAllocate, OpTruncate:
		return fmt.Sprintf("%s to %d", s, o.Length)
	}
	return s
}

// partway is the error StopPartway returns.
type partway struct{ bytes int64 }

func (p partway) Error() string        { return fmt.Sprintf("%v after %d bytes", ErrStopped, p.bytes) }
func (p partway) Is(target error) bool { return target == ErrStopped }

// StopPartway, returned by a hook, lets the first bytes of a write happen and
// stops the file system then, as a process is killed in the middle of a copy.
// Other operations do not happen.
func StopPartway(bytes int64) error { return partway{bytes} }

// SetHook has hook called before every operation that changes something, without
// locks held: it may call Crash, Kill and Stop. With an error from it the operation
// is not done and fails with that error; an error matching ErrStopped stops the
// file system. A sync that fails so gives up the pages it should have written, as
// kernels do: they are uncertain until written anew and synced. Nil removes it.
func (m *Mem) SetHook(hook func(Op) error) {
	if hook == nil {
		m.hook.Store(nil)
		return
	}
	m.hook.Store(&hook)
}

// Stop ends the life of the process that uses the file system: every further
// operation fails with ErrStopped. Crash and Kill tell what comes after.
func (m *Mem) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
}

// StopAt stops the file system in place of operation n, counted from 1 since it
// was made. Zero takes that back.
func (m *Mem) StopAt(n int64) { m.stopAt.Store(n) }

// Ops is the number of operations so far that changed something or tried to.
func (m *Mem) Ops() int64 { return m.ops.Load() }

// SetCapacity limits the space of all files, in bytes; they take whole pages.
// More is ENOSPC, and from Mapping.Write into a hole ErrFault. Zero means no limit.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// beginWrite asks the hook about a write. It returns how many bytes are to be
// written and whether the file system stops after them.
func (m *Mem) beginWrite(op Op) (part int64, stop bool, err error) {
	err = m.begin(op)
	if p, ok := errors.AsType[partway](err); ok {
		return max(0, min(p.bytes, op.Length)), true, nil
	}
	return op.Length, false, err
}

// begin counts op and asks the hook about it. An error means that op is not done,
// except for a partway from a write, whose caller stops the file system itself.
func (m *Mem) begin(op Op) error {
	op.N = m.ops.Add(1)
	var err error
	if at := m.stopAt.Load(); at > 0 && op.N >= at {
		err = ErrStopped
	} else if hook := m.hook.Load(); hook != nil {
		err = (*hook)(op)
	}
	if err == nil {
		return nil
	}
	_, partly := errors.AsType[partway](err)
	partly = partly && (op.Kind == OpWrite || op.Kind == OpMappedWrite)
	if errors.Is(err, ErrStopped) && !partly {
		m.Stop()
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
}

// do asks the hook about op and then calls apply with the lock held, unless the
// file system has stopped.
func (m *Mem) do(op Op, apply func() error) error {
	if err := m.begin(op); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := ErrStopped
	if !m.stopped {
		err = apply()
	}
	if err != nil {
		return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
	}
	return nil
}
