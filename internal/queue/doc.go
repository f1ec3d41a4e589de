// Package queue is the protocol of a queue over one partition: which records are
// handed out, how often they were, to whom a lock is refused, and what is done with.
//
// A State is the fold of changes in the order of a log. It decides (Deliver, Ack,
// Release, Reject, Skip): a decision is a Change that has not happened yet. Whoever
// drives the State writes the change down and then has it happen (Apply), or takes it
// back (Abandon) where it was not written. There is no clock, file or goroutine here.
//
// # What is written and what is not
//
// Deliveries are written before the record is handed out, so that a record that kills
// the process is counted. Locks are not: they belong to consumers of the process, and
// end with it. What was locked is due again, after its back-off, when a State resumes.
//
// # A record's life
//
//	           Take          Deliver           Ack, Reject
//	(unknown) ------> waiting -------> locked -----------> done
//	    |                ^               |
//	    | Skip           +---------------+
//	    v                 Release, Expire
//	   done
//
// A delivery is named by its offset and its count, the number of deliveries up to and
// with it. A later delivery has a higher count, so an answer under a lower one comes
// too late and is refused.
//
// # Invariants
//
//	below Start all is done; what is done is never handed out again
//	a record has at most one delivery that is locked, the one with its count
//	a count never goes back
//	records delivered and not done        <= Rules.InFlight
//	records held back until they are due  <= Rules.LookAhead
package queue
