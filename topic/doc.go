// Package topic gives the partitions of a log a type: a [Topic] names the two
// codecs of its keys and values, a [Producer] writes typed records, [Read] and
// its relatives iterate over them.
//
// A Topic is a plain value. Declaring one never fails and touches no log; what
// is wrong with a declaration is kept and returned by Topic.Err and by whatever
// uses the topic first.
//
// # What a producer promises
//
// Send returns when its record is as durable as the topic's sync policy asks. Queue,
// QueueRecord and Async do not wait: Flush, a callback or a Pending tell later.
// SendBatch sends a slice, and SendIf a record under a condition.
// Every producer is idempotent: it has a producer id of its own and numbers its
// records per partition, so none is ever stored twice. Records that one
// goroutine sends to one partition are stored in the order of its calls. An
// error is definite (the record is not in the log and never will be) unless it
// matches [ErrUnknown].
//
// # What a consumer promises
//
// The consumers of a group share the partitions of its topics: each is read by one of
// them at a time, from the group's position on. A position belongs to a membership: a
// consumer that has lost a partition cannot move its position any more, also when the
// partition comes back. Under AtLeastOnce a record is delivered again only after its
// owner was lost, or ended before it had committed; under AtMostOnce never. Wherever
// a consumer does not go on where its group was, it tells: see [Reset].
//
// # What a queue promises
//
// The consumers of a [Queue] share its records, whatever the number of partitions. A
// record belongs to who received it until it is answered or its lock runs out; it is
// delivered at least once, its deliveries are counted before it is handed out, and what
// Ack or Reject confirmed is never delivered again.
//
// # What a reader sees
//
// Unless the topic is declared Uncommitted, only committed records below the
// last stable offset. The order within a partition is the log's; partitions
// take turns batch by batch. After an error an iterator ends.
//
// In a topic declared Delayed or with a TimeToLive readers and consumers keep the order:
// a record that is not due holds back those behind it in its partition. A queue
// delivers each when it is due. What has expired is passed over, and told to OnExpired.
//
// # Invariants
//
//	records of a batch written  = the records added to it, in order
//	batches in flight           <= 1 per partition and producer
//	sequence of the next batch  = number of records written so far (modulo 2^31), under
//	                              the producer's name where it has one
//	memory of batches not done  <= ProducerOptions.MemoryBytes
//	what is committed by itself <= what the loop of the program has finished
//
// # Lock order
//
// A consumer's commitMu, its mu. Under mu nothing is awaited, proposed or called back;
// commitMu is held while a commit is written.
//
// Queues.mu, which is held while a queue is opened or closed, then queueCore.mu, then
// queuePartition.mu. Under the last two nothing is awaited, written or called back.
//
// A partitionQueue's mu is a leaf: under it nothing is awaited, written,
// encoded by a codec or called back. The same goes for sender.mu; the two are
// never held together. versions.mu is held while a partition is read, and comes
// before the partition's own locks, under which WriteIf asks for a version without it.
package topic
