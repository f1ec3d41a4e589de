// Package thalweg keeps durable streams inside your program: a partitioned log,
// typed streams with state and event time over it, and results that are counted
// exactly once, through any crash of the process.
//
// A [Node] is one open directory. It joins the log plane, where every topic,
// changelog and transaction lives, with the engine that runs topologies of
// package stream, so that the rest of the library needs to know neither files
// nor each other:
//
//	node, err := thalweg.Open("data")    // or Options{...}.Open("data"); "" keeps all in memory
//	producer, err := node.Producer(clicks)
//	err = node.Run(ctx, app)             // until it fails or ctx ends
//	for r, err := range node.Read(ctx, perMinute, topic.Start()) { ... }
//	err = node.Close()
//
// # Promise
//
// One process holds the directory at a time, and says so to the others. What a
// topic acknowledged is there after a crash, as its sync policy says; see
// docs/guarantees.md for what each policy keeps through a power cut. A directory
// written in a format this version does not know is refused and left as it is.
//
// # Invariants
//
//	the lock is taken before anything below the directory is read or written
//	and released after everything else is closed
//
//	jobs are stopped before producers, producers closed before the log plane:
//	nothing is written to a closed log
//
// # Lock order
//
// Node.mu is a leaf: no method of another package is called with it held.
package thalweg
