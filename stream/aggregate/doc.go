// Package aggregate has ready aggregates for the Aggregate of groups, windows and
// sessions.
//
// Each is a value that is empty as it is, with Add, which takes one more thing in, and
// Merge, which takes in all that another has:
//
//	prices := orders.GroupBy(Order.Country).Aggregate(aggregate.Mean(Order.Price))
//	visits := views.Session(window.Gap(time.Hour)).Aggregate(aggregate.Distinct(View.Page), aggregate.Set[string].Merge)
//	means := numbers.GroupByKey().Aggregate(aggregate.Average.Add)
//
// # Promise
//
// However what is added is cut into parts, aggregates of the parts merged in order say
// what one of the whole says; floating-point sums agree within rounding, all else is the
// same.
//
// # State
//
// Each brings its own codec, whose bytes are described in format.go and begin with a byte
// that names the aggregate: state of one is never read as that of another. Count and Sum
// are plain numbers. Set, Cardinality and Distribution hold memory that Add and Merge
// change in place: what they are called on must not be used afterwards, only what they
// return.
package aggregate
