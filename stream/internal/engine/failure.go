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

// DeletedInputError is the cause of a Failure where retention, or somebody, deleted
// records of a source before the job had read them. It matches log.ErrOffsetOutOfRange.
type DeletedInputError struct {
	Partition topic.TopicPartition
	Next      topic.LogOffset // the first offset the job had not read
	Start     topic.LogOffset // the first one that is kept
}

// Lost is how many offsets are gone.
func (e *DeletedInputError) Lost() int64 { return int64(e.Start - e.Next) }

func (e *DeletedInputError) Error() string {
	return fmt.Sprintf("offsets [%d, %d) of %s were deleted before the job read them, by the topic's retention or by hand: "+
		"to go on without these %d, set SkipDeleted on the topology; to keep records as long as the job may stand still, give the topic a longer retention",
		e.Next, e.Start, e.Partition, e.Lost())
}

// Is makes the error match log.ErrOffsetOutOfRange.
func (e *DeletedInputError) Is(target error) bool { return target == topic.ErrOffsetOutOfRange }

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
