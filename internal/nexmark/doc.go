// Package nexmark makes the events of the Nexmark benchmark, an auction house with
// persons, auctions and bids: any event by its number, the same bytes everywhere.
//
// The mix, the hot keys and the distributions are those of the published generators;
// what these leave to chance follows from a seed and the number of an event here, so
// that answers can be compared. The tests of this package are the benchmark's queries,
// each as a pipeline and as a definition, in a file of its own.
//
// A generator is made once and then read by any number of goroutines.
package nexmark
