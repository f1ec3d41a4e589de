// Package bench holds the benchmarks of the library, run with
//
//	make bench
//
// or one of them with go test -run '^$' -bench Pipeline ./bench. It is the one place where
// speed is claimed, with the auction's queries in internal/nexmark and the other libraries in
// the module bench/peers.
//
// Machines differ, so a figure alone says little: each benchmark also measures,
// in the same run, the floor it is compared with (a copy and a checksum of the
// same bytes for the log, a hand-written loop for a pipeline) and reports it under the
// same unit with "floor-" before it, and "%floor", what is reached of it. A benchmark fails when
// what it computed is wrong. By default each takes seconds; flags ask for the full forms. It
// uses the public packages only, as a user would.
//
// The program in bench/report makes a table and a chart of what is printed, and
// docs/performance.md tells how to read them.
package bench
