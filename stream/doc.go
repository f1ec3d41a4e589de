// Package stream is the typed DSL for pipelines over topics, and the engine that
// runs them.
//
// A Topology is declared with fluent operators and then run by a node:
//
//	app := stream.New("clicks")
//	app.Stream(clicks).
//		Filter(Click.Human).
//		GroupBy(func(c Click) string { return c.User }).
//		Window(window.Tumbling(time.Minute)).
//		Count().
//		To(perMinute)
//	err := node.Run(ctx, app)
//
// Declaring has no effect and never fails; Validate, which running calls first,
// reports every mistake at once with the step's name and its line.
//
// # Promise
//
// Input positions, state and output of a job are committed together: a reader of
// committed records sees the results of every input record exactly once, whatever
// is killed at whatever instant. Functions given to operators may run again for the
// same record after a failure; what they return then counts once.
//
// # Rules of the operators
//
//   - Operators see the value; the same name with KV also sees the key. Map changes
//     values, KeyBy and GroupBy change keys, nothing else does.
//   - A record without a value passes operators that keep or replace values
//     untouched, without a call of the function; operators that need the value
//     (FlatMap, KeyBy, GroupBy, aggregations) skip it and count it.
//   - A record without a key is skipped and counted by GroupByKey.
//   - Functions get values, and own what they get, except that a slice, map or
//     pointer inside may be shared with other branches of the stream: do not change it.
//     An aggregate may be changed in place by the function that makes it: what streams
//     behind it keep, or hand to other tasks, are copies.
//
// # Queries
//
// Job.View reads the rows of a table while the job runs, as of the newest checkpoint or up to
// the latest change; View.Subscribe gives them and then what changes. Picture draws a
// topology or a job.
//
// # Changes
//
// State is found by the names of steps. Job.Evolution tells what a changed topology made of
// it, Job.SaveTo writes a savepoint, which Topology.StartFrom begins from and any program can
// read, and Topology.Tasks sets in how many tasks stages run.
//
// # Errors
//
// A function that returns an error or panics ends the job with a Failure, unless OnError
// of the topology or of the step says otherwise: Retry, Skip or DeadLetter. Records a
// source cannot decode are treated alike. A row of a table for which a Filter, Map or GroupBy fails,
// and a pair for which a join does, are passed over as if there were none; the dead letter of a join is
// a Pair. Topology.Replay and Stream.Replay have dead letters tried again. Failures of To, Peek,
// Combine and Watermarks always end the job.
//
// # Time
//
// The event time of a record is its timestamp, or what EventTime extracts. Each
// source partition has a watermark, Disorder behind the newest event time; a
// task's watermark is the lowest of its active inputs. A partition from which
// nothing came for IdleAfter does not hold it back. Watermarks sets other strategies
// for a source. Windows close on the watermark; what comes later is late, and goes to
// Late or is counted.
package stream
