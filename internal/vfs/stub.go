package vfs

import "errors"

// ErrLocked is returned by FS.Lock when somebody else holds the lock.
var ErrLocked = errors.New("vfs: already locked")

// OS returns the operating system's file system.
func OS() FS { panic("todo") }

// NewMem returns an empty in-memory file system.
func NewMem() *Mem { panic("todo") }

// Mem is an in-memory FS for tests and for nodes without a directory.
type Mem struct{ FS }
