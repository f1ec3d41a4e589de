package vfs

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

var (
	// ErrLocked is returned by FS.Lock when somebody else holds the lock.
	ErrLocked = errors.New("vfs: already locked")

	// ErrFault is the error of a page that could not be brought in: a bad disk,
	// a full one below a sparse file, or a place past the end of the file.
	ErrFault = errors.New("vfs: page fault in a mapped file")
)

// Guard calls f and turns a page fault in a mapped file that f reads into an error
// matching ErrFault, where it would end the process otherwise. Other panics pass.
func Guard(f func() error) (err error) {
	defer recoverFault(debug.SetPanicOnFault(true), &err)
	return f()
}

// recoverFault is deferred with the former result of SetPanicOnFault.
func recoverFault(former bool, err *error) {
	debug.SetPanicOnFault(former)
	r := recover()
	if r == nil {
		return
	}
	// Only faults at an address carry one; a nil dereference does not.
	fault, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(r)
	}
	*err = fmt.Errorf("%w (address %#x)", ErrFault, fault.Addr())
}
