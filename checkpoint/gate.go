package checkpoint

import "fmt"

// gate lets through what belongs to the open checkpoint of an attempt and nothing
// else, so that a partition has one open generation of a job: what a task computes
// for n+1 while others still work on n waits in the task's memory.
//
//	shut ──begin──▶ open(n) ──seal──▶ sealed(n) ──advance──▶ open(n+1)
//	  any ──close──▶ closed
//
// Invariant: open counts up by one, and only when the checkpoint before has
// completed or is known to have moved nothing.
type gate struct {
	state gateState
	open  ID // meaningful in gateOpen and gateSealed
}

type gateState uint8

const (
	gateShut   gateState = iota // checkpoint 0 is still to be committed
	gateOpen                    // writes of open are let through
	gateSealed                  // all tasks have reported: what was written is being committed
	gateClosed                  // the attempt is over
)

func (s gateState) String() string { return [...]string{"shut", "open", "sealed", "closed"}[s] }

// begin opens the checkpoint after last.
func (g *gate) begin(last ID) { *g = gate{gateOpen, ID{last.Attempt, last.N + 1}} }

// admits tells whether something of checkpoint id may be appended now.
func (g *gate) admits(id ID) error {
	switch {
	case g.state == gateClosed:
		return ErrAttemptOver
	case g.state == gateShut:
		return fmt.Errorf("%w: checkpoint 0 is not committed yet", ErrGeneration)
	case id != g.open:
		return fmt.Errorf("%w: write for %v while %v is open", ErrGeneration, id, g.open)
	case g.state == gateSealed:
		return fmt.Errorf("%w: write for %v after all its reports", ErrGeneration, id)
	}
	return nil
}

// seal refuses writes from now on, since what the open checkpoint holds is being
// named in its Complete.
func (g *gate) seal() {
	if g.state == gateOpen {
		g.state = gateSealed
	}
}

// advance opens the next checkpoint.
func (g *gate) advance() {
	if g.state == gateSealed {
		g.begin(g.open)
	}
}

func (g *gate) close() { g.state = gateClosed }
