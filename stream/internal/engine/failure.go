package engine

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/topic"
)

// Failure is what ended a job: an error or a panic, where it happened and which
// record was being processed. Package stream makes it public.
type Failure struct {
	Job  string
	Step string // name of the step, or what the engine was doing
	Line string // file:line where the step was declared; empty for the engine's own work

	Source topic.TopicPartition // where the record came from; an empty Topic is unknown
	Offset int64                // of the source record, or -1

	Cause error
	Stack []byte // of a panic, else nil
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("stream: job %q: step %q", f.Job, f.Step)
	if f.Line != "" {
		s += " (" + f.Line + ")"
	}
	if f.Source.Topic != "" {
		s += fmt.Sprintf(": topic %s partition %d", f.Source.Topic, f.Source.Partition)
		if f.Offset >= 0 {
			s += fmt.Sprintf(" offset %d", f.Offset)
		}
	}
	return s + ": " + f.Cause.Error()
}

func (f *Failure) Unwrap() error { return f.Cause }

// errGoexit is the cause of a Failure where a user's function did not come back.
var errGoexit = errors.New("the function ended its goroutine with runtime.Goexit; testing's FailNow does that too")

// PanicError is the cause of a Failure that was a panic.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
