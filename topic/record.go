package topic

import "time"

// Record is one typed record.
type Record[K, V any] struct {
	Key   K
	Value V

	// NoKey says that the record has no key, which differs from an empty one;
	// Key is zero then. To a producer a nil slice, pointer, map or interface and
	// a value without content, such as struct{}{}, are no key either.
	NoKey bool

	// Deleted says that the record is a tombstone: it has no value, which
	// differs from an empty one, and deletes what its key had. A nil value alone
	// deletes nothing.
	Deleted bool

	// Time is the record's time in milliseconds, UTC. A producer takes the zero
	// Time for the time of sending, and the topic's EventTime goes before both.
	Time time.Time

	// NotBefore is when the record is to be read at the earliest, and Expires when it is
	// not to be read any more, in milliseconds, by the clock of who reads; zero for no
	// such time. Only topics declared Delayed or with a TimeToLive have records with
	// either. They travel in the headers HeaderNotBefore and HeaderExpires. The default
	// that TimeToLive gives is not in Expires.
	NotBefore, Expires time.Time

	Headers []Header

	// Partition and Offset are where the record was read; a producer ignores them.
	Partition int
	Offset    int64
}

// Result tells what became of a record.
type Result struct {
	Partition int
	Offset    int64     // -1 when Err is not nil
	Time      time.Time // in milliseconds, UTC, as readers will see it
	Err       error     // definite unless it matches ErrUnknown
}
