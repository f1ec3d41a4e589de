package checkpoint

// rules are the rules of the protocol that the tests take out, one at a time, to
// show that the explorer sees the difference. The zero value is all rules on, and
// nothing outside the tests uses another.
type rules struct {
	acceptAnyAttempt bool // apply does not check the attempt of a Complete
	readBeforeBegin  bool // recovery reads the checkpoint before attempt+1 is committed (the explorer's recovery looks here)
	rememberNewest   bool // only the newest completed transaction of a job is remembered
	abortUndecided   bool // a leader ends a transaction that nothing has decided
	admitEnded       bool // leaders accept batches of owners that are over
	compareNOnly     bool // reports and outcomes are matched by n alone
	alignNOnly       bool // and barriers
	commitEnded      bool // apply commits a plain transaction that is decided, or whose owner is over
}

// same tells whether a and b name the same checkpoint.
func same(a, b ID, nOnly bool) bool { return a.N == b.N && (nOnly || a.Attempt == b.Attempt) }
