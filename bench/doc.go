// Package bench holds the benchmarks of the library, run with
//
//	go test -bench . ./bench
//
// Machines differ, so a figure alone says little: each benchmark also measures,
// in the same run, the floor it is compared with (a copy and a checksum of the
// same bytes for the log, a hand-written loop for a pipeline) and reports the
// ratio beside records/s, MB/s and allocations per record. It uses the public
// packages only, as a user would.
package bench
