// Package statetest tests implementations of state.Backend and state.DB against
// what their interfaces promise.
package statetest
