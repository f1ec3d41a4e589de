// Package peers runs the log beside other Go libraries that keep records on disk, each with
// the settings its authors recommend, in one run:
//
//	cd bench/peers && go test -run '^$' -bench .
//
// It is a module of its own, so that the library does not depend on them.
package peers
