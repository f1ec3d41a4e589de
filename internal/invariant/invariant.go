// Package invariant states what our own code guarantees. A failed check is a
// bug of ours, never the consequence of bytes, a peer or a user.
package invariant

import "fmt"

// Check panics with the message when ok is false. Its arguments are evaluated, and
// may be allocated, either way: code that runs for every record branches first.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("thalweg: invariant violated: " + fmt.Sprintf(format, args...))
	}
}
