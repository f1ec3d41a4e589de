package window

import "time"

// Idleness tells whether an input has been silent for too long by the wall
// clock, so that the others need not wait for its watermark. The caller brings
// the time. The zero value never finds an input idle.
type Idleness struct {
	// After is the silence that makes an input idle. Zero and below mean never.
	After time.Duration

	since time.Time // of the last record, or the first look at it
}

// Seen notes a record at now.
func (i *Idleness) Seen(now time.Time) { i.since = now }

// Check tells whether the input is idle at now. The first call of a new value
// starts its clock, so that an input that never sends becomes idle as well. A
// clock set back starts the silence anew.
func (i *Idleness) Check(now time.Time) (idle bool) {
	if i.since.IsZero() || now.Before(i.since) {
		i.since = now
	}
	return i.After > 0 && now.Sub(i.since) >= i.After
}
