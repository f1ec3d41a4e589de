// Package differential has no code but tests: random topologies over random records,
// run by the engine and computed from the definitions of their operators.
//
// The evaluator is slow and obviously right. It has all records of all time at once, so
// that there is neither order of arrival, nor watermark, nor state in it: each operator is a
// function from the records that go in to those that come out (definition_test.go).
package differential
