package log

import (
	"fmt"
	"runtime/debug"
)

// memoryFault is what the runtime panics with when a mapped page cannot be read.
type memoryFault interface {
	error
	Addr() uintptr
}

// recoverFault turns the page fault of a bad disk into an error. Use it as
//
//	defer recoverFault(debug.SetPanicOnFault(true), &err)
func recoverFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	switch r := recover().(type) {
	case nil:
	case memoryFault:
		*err = fmt.Errorf("a page could not be read: %w", r)
	default:
		panic(r)
	}
}
