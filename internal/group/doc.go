// Package group is the protocol of consumer groups: who is a member, which
// partition belongs to whom, and how far each was read.
//
// A State is the fold of commands in the order of a log. A command is checked where
// it is applied, by what the commands before it did, and nowhere else; there is no
// clock, file or goroutine here. Reconcile is the other half: what a member has to
// give up and may take up, by what it holds and what the group says.
//
// # The protocol
//
// Every change of members, subscriptions or target raises the group's epoch. A
// member computes a target (an Assign function) and proposes it for the epoch it was
// computed from; of several the first wins and the others are refused. From then
// on each member moves on its own: it gives up what the target takes from it
// (Release), and a partition that nobody owns is granted to whom the target names,
// at once and in apply. Nobody waits for a member that neither gives nor takes.
//
// A grant carries the epoch it was made in. A position is accepted from the owner
// under that very grant, so what a member knew of a partition is void once it lost
// it, also when the partition comes back.
//
// # Invariants
//
//	a partition has at most one owner, and at most one in any epoch
//	owners and target name members of the group
//	TargetEpoch <= Epoch; where they differ a member has to propose a target
//	Idle is zero if and only if there are members
package group
