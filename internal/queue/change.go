package queue

// Kind is what a change changes. The numbers are those of the format.
type Kind uint8

const (
	Delivered Kind = 1 // From is handed out for the Count-th time
	Done      Kind = 2 // [From, To) is done with, by Cause
	Released  Kind = 3 // delivery Count of From was given back; it is due again at At
	Epoch     Kind = 5 // records above have the leader epoch At
	Cut       Kind = 6 // the partition lost its records from From on; so does the queue
)

// Change is one change of a State.
type Change struct {
	Kind     Kind
	From, To int64 // To is From+1 for the kinds of one record
	Count    int64
	At       int64 // Unix ms, or the leader epoch
	Cause    Cause
}

// Cause is why a record is done. The numbers are those of the format.
type Cause uint8

const (
	Acked     Cause = 1 // acknowledged
	Rejected  Cause = 2 // rejected by a consumer
	Exhausted Cause = 3 // delivered as often as allowed without an acknowledgement
	Expired   Cause = 4 // its time to live was over
	Removed   Cause = 5 // deleted from the partition before it was done
	Skipped   Cause = 6 // offsets without a record to deliver: markers, aborted ones, what compaction took

	causes = 6
)

func (c Cause) String() string {
	return [...]string{"none", "acknowledged", "rejected", "deliveries", "expired", "removed", "skipped"}[c]
}

// Dead tells whether a record that is done so is a dead letter.
func (c Cause) Dead() bool { return c == Rejected || c == Exhausted || c == Expired }

// Totals count offsets by the cause they are done with, and deliveries at 0, since
// the queue began.
type Totals [causes + 1]int64

// Of returns the number of offsets that are done with by c.
func (t Totals) Of(c Cause) int64 { return t[c] }

// Deliveries is the number of deliveries.
func (t Totals) Deliveries() int64 { return t[0] }

// add appends c, or lets it grow the change before it.
func add(changes []Change, c Change) []Change {
	if n := len(changes); n > 0 && c.Kind == Done {
		if last := &changes[n-1]; last.Kind == Done && last.Cause == c.Cause && last.To == c.From {
			last.To = c.To
			return changes
		}
	}
	return append(changes, c)
}

// Join appends more to changes, as few as can say it.
func Join(changes []Change, more ...Change) []Change {
	for _, c := range more {
		changes = add(changes, c)
	}
	return changes
}
