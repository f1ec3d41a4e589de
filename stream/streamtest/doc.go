// Package streamtest runs a topology in memory, in one goroutine and in virtual
// time, so that a test of a pipeline is a function of its inputs.
//
// It is the production engine over the production log and commit protocol, on an
// in-memory file system: what a reader of committed records sees here is what one
// sees of a running node. A Driver processes when it is asked for something: Send
// and SendAt only append to the log; Records, Latest, Watermark, Advance and
// Checkpoint let the pipeline work until there is nothing left to do. Crash stops
// it where it is, as kill -9 would, and starts it again from what is in the log.
//
// Same checks a property of a whole pipeline: that what it commits depends on its input
// alone, and not on schedule, crashes, partitions or checkpoints.
package streamtest
