package checkpoint

import "errors"

var (
	// ErrClosed is returned by a closed Plane or Session.
	ErrClosed = errors.New("checkpoint: closed")

	// ErrAttemptOver says that the metadata log knows a later attempt of the job,
	// or that this one has ended: nothing it does counts any more.
	ErrAttemptOver = errors.New("checkpoint: the attempt is over")

	// ErrGeneration says that a write or a Complete is not of the checkpoint that
	// is open.
	ErrGeneration = errors.New("checkpoint: not the open checkpoint")

	// ErrJobRunning is returned by StartJob while the job runs on this plane.
	ErrJobRunning = errors.New("checkpoint: a job of this name is running already")

	// ErrNoCheckpoint says that a job has checkpoints, but what none of them
	// names is still there: input, changelog or output partitions have lost records
	// that were durable, or were deleted.
	ErrNoCheckpoint = errors.New("checkpoint: no retained checkpoint is whole")

	// ErrProducerOpen is returned for a named producer that is open already.
	ErrProducerOpen = errors.New("checkpoint: the producer is open")

	// ErrMetadata says that the metadata log failed, so that the outcome of its
	// last entry is not known. The plane accepts nothing more until it is
	// opened again.
	ErrMetadata = errors.New("checkpoint: the metadata log failed")

	// ErrUnknown is matched by an error after which what was proposed may be in the
	// metadata log all the same.
	ErrUnknown = errors.New("checkpoint: outcome unknown")

	// ErrFenced says that the owner of a transaction is over: a newer one has its name,
	// its transaction was open for too long, or it was aborted by name.
	ErrFenced = errors.New("checkpoint: the owner of the transaction is over")

	// ErrNoTransaction says that none is open, or none of that name.
	ErrNoTransaction = errors.New("checkpoint: no such transaction")

	// ErrVersion says that the metadata log was written by a later version.
	ErrVersion = errors.New("checkpoint: unknown format version in the metadata log")

	// ErrInvalid says that bytes of the metadata log are not an entry.
	ErrInvalid = errors.New("checkpoint: invalid metadata entry")

	// ErrExhausted says that the attempt, or the node, has used up its ids.
	ErrExhausted = errors.New("checkpoint: producer ids are used up")
)
