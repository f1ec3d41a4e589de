package thalweg

import "errors"

var (
	// ErrClosed is returned by every method of a node that has been closed.
	ErrClosed = errors.New("thalweg: node is closed")

	// ErrLocked is returned by Open for a directory that is open already, in
	// this process or in another.
	ErrLocked = errors.New("thalweg: directory is in use")

	// ErrNoTransaction is returned by AbortTransaction where the owner has none open, and
	// by TransactionOutcome for an id that no transaction was ever given.
	ErrNoTransaction = errors.New("thalweg: no such transaction")

	// ErrFormat is returned by Open for a directory whose format this version
	// does not know, or that holds something other than a node.
	ErrFormat = errors.New("thalweg: directory has an unknown format")
)
