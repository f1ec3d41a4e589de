package group

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	modelSeed      = flag.Uint64("group.seed", 0, "seed of the first history; 0 picks one")
	modelHistories = flag.Int("group.histories", 0, "number of histories; 0 means as many as the mode asks")
)

const modelSession = 1000 // ms of virtual time

// actor is a consumer: what it holds, how far it read, and when it last polled. It
// may not know yet what has become of its membership.
type actor struct {
	id      MemberID
	static  string
	session int64
	sub     Subscription
	held    map[Partition]int64
	next    map[Partition]int64 // position by partition
	joined  bool
	dead    bool  // its process is gone: it polls no more, but what it sent may still arrive
	slow    int64 // does not poll before
	polled  int64
}

// world is a group, its topics and its consumers, in virtual time.
type world struct {
	random     *rand.Rand
	now        int64
	state      *State
	partitions map[string]int32
	ends       map[Partition]int64
	actors     []*actor
	lastID     MemberID
	assign     Assign
	planned    int32 // partitions at the last target
	calm       bool  // no more crashes, joins and so on
	gentle     bool  // none ever: all who go leave in order

	holders   map[Grant]MemberID  // who was granted what
	grants    map[Partition]int   // how often a partition changed hands
	delivered map[Partition][]int // how often each record was delivered
	whole     map[Partition]int64 // all below was delivered
	late      []Commit            // commits on their way
}

const modelGroup = "g"

func newWorld(seed uint64, r rules) *world {
	w := &world{
		random:     rand.New(rand.NewPCG(seed, 1)),
		now:        1_000_000,
		state:      NewState(),
		partitions: map[string]int32{},
		ends:       map[Partition]int64{},
		holders:    map[Grant]MemberID{},
		grants:     map[Partition]int{},
		delivered:  map[Partition][]int{},
		whole:      map[Partition]int64{},
	}
	w.state.rules = r
	w.gentle = seed%4 == 0
	w.assign = Sticky
	if seed%3 == 0 {
		w.assign = Range
	}
	for i := range 1 + w.random.IntN(2) {
		w.partitions[fmt.Sprintf("t%d", i)] = int32(1 + w.random.IntN(4))
	}
	return w
}

func (w *world) group() *Group { return w.state.Groups[modelGroup] }

func matchPrefix(pattern, topic string) bool {
	return len(topic) >= len(pattern) && topic[:len(pattern)] == pattern
}

// step lets one thing happen.
func (w *world) step() error {
	w.now += int64(1 + w.random.IntN(40))
	w.produce()
	if w.gentle {
		w.pollAll()
	}
	if !w.calm {
		w.disturb()
	}
	w.deliverLate()
	for _, a := range w.actors {
		w.background(a)
	}
	if len(w.actors) > 0 {
		a := w.actors[w.random.IntN(len(w.actors))]
		if !a.dead && w.now >= a.slow {
			if err := w.poll(a); err != nil {
				return err
			}
		}
	}
	due, _ := w.state.Due(w.now, -1)
	for _, c := range due {
		w.state.Apply(w.now, c)
	}
	return w.check()
}

func (w *world) produce() {
	for _, t := range slices.Sorted(maps.Keys(w.partitions)) {
		for i := range w.partitions[t] {
			if w.random.IntN(4) == 0 && !w.calm {
				w.ends[Partition{t, i}] += int64(w.random.IntN(5))
			}
		}
	}
}

func (w *world) disturb() {
	switch n := w.random.IntN(60); {
	case n < 5 && len(w.actors) < 6:
		w.add()
	case n < 8 && len(w.actors) > 0: // one leaves in order
		a := w.actors[w.random.IntN(len(w.actors))]
		if !a.dead && a.joined {
			w.revoke(a, Reconcile(w.group(), a.id, a.held))
			for p, epoch := range a.held {
				w.commit(a, p, epoch)
			}
			w.end(a)
		}
	case n < 10 && len(w.actors) > 0 && !w.gentle: // one is killed
		w.actors[w.random.IntN(len(w.actors))].dead = true
	case n < 13 && len(w.actors) > 0 && !w.gentle: // one is slow, perhaps too slow
		w.actors[w.random.IntN(len(w.actors))].slow = w.now + int64(w.random.IntN(3*modelSession))
	case n == 13:
		w.partitions["t0"]++
	case n == 14:
		w.partitions[fmt.Sprintf("t%d", len(w.partitions))] = 1
	case n == 15 && !w.gentle: // the whole process is killed
		for _, a := range w.actors {
			a.dead = true
		}
		w.late = nil // with what it had not written
		w.state.Apply(w.now, Restart{})
	}
}

func (w *world) add() {
	w.lastID++
	a := &actor{id: w.lastID, session: modelSession, polled: w.now, held: map[Partition]int64{}, next: map[Partition]int64{}}
	a.sub = Subscription{Pattern: "t"}
	if w.random.IntN(4) == 0 {
		a.sub = Subscription{Topics: []string{"t0"}}
	}
	if w.random.IntN(3) == 0 {
		a.static = fmt.Sprintf("static %d", w.random.IntN(3))
	}
	w.actors = append(w.actors, a)
}

// end takes an actor out in order; a static one keeps its partitions for a while.
func (w *world) end(a *actor) {
	if a.static != "" && w.random.IntN(2) == 0 {
		w.state.Apply(w.now, Away{Group: modelGroup, Member: a.id})
	} else {
		w.state.Apply(w.now, Leave{Group: modelGroup, Member: a.id})
	}
	w.actors = slices.DeleteFunc(w.actors, func(b *actor) bool { return a == b })
}

// background is what a consumer does beside its program: it proposes targets, and it
// ends its own membership when the program does not poll.
func (w *world) background(a *actor) {
	g := w.group()
	if g == nil || !a.joined {
		return
	}
	if a.dead || w.now-a.polled > a.session {
		if w.now-a.polled > a.session {
			w.state.Apply(w.now, Leave{Group: modelGroup, Member: a.id})
			if a.dead {
				w.actors = slices.DeleteFunc(slices.Clone(w.actors), func(b *actor) bool { return a == b })
			}
		}
		return
	}
	total := int32(0)
	for _, n := range w.partitions {
		total += n
	}
	if g.TargetEpoch == g.Epoch && w.planned == total || g.Assigner() != a.id || w.random.IntN(2) == 0 {
		return
	}
	c := SetTarget{Group: modelGroup, Epoch: g.Epoch, Target: w.assign(Plan(g, w.partitions, matchPrefix))}
	if w.random.IntN(3) == 0 && len(w.actors) < 6 && !w.calm { // somebody joins in between
		w.add()
		w.join(w.actors[len(w.actors)-1])
	}
	if w.state.Apply(w.now, c).Err == nil {
		w.planned = total
	}
}

func (w *world) join(a *actor) {
	r := w.state.Apply(w.now, Join{Group: modelGroup, Member: a.id, Static: a.static, Session: a.session, Subscription: a.sub})
	if errors.Is(r.Err, ErrStaticInUse) {
		a.static = ""
		r = w.state.Apply(w.now, Join{Group: modelGroup, Member: a.id, Session: a.session, Subscription: a.sub})
	}
	a.joined = r.Err == nil
	a.polled = w.now
}

// poll is one poll of a program that commits after processing.
func (w *world) poll(a *actor) error {
	a.polled = w.now
	if !a.joined {
		w.join(a)
	}
	g := w.group()
	s := Reconcile(g, a.id, a.held)
	for _, l := range s.Lost {
		if w.random.IntN(2) == 0 { // what the program thought it had done arrives late
			w.late = append(w.late, w.commitOf(a, l.Partition, l.Epoch))
		}
		delete(a.held, l.Partition)
	}
	if s.Over {
		a.joined = false
		w.lastID++
		a.id = w.lastID
		return nil
	}
	w.revoke(a, s)
	for _, grant := range s.Granted {
		if other, ok := w.holders[grant]; ok && other != a.id {
			return fmt.Errorf("%v was granted to %d and to %d", grant, other, a.id)
		}
		for _, b := range w.actors {
			epoch, holds := b.held[grant.Partition]
			m, member := g.Members[b.id]
			if b != a && holds && member && m.Away == 0 && !b.dead && epoch != 0 && w.now-b.polled <= b.session && g.Owners[grant.Partition].Member == a.id {
				return fmt.Errorf("%v is granted to %d while member %d still has it since epoch %d", grant, a.id, b.id, epoch)
			}
		}
		w.holders[grant] = a.id
		w.grants[grant.Partition]++
		a.held[grant.Partition] = grant.Epoch
		from, _ := g.Position(grant.Partition)
		a.next[grant.Partition] = from.Offset
	}
	// Read some and then commit, or not yet.
	for _, p := range slices.SortedFunc(maps.Keys(a.held), Partition.Compare) {
		for range w.random.IntN(6) {
			if a.next[p] >= w.ends[p] {
				break
			}
			w.deliver(p, a.next[p])
			a.next[p]++
		}
		if w.random.IntN(3) == 0 {
			if w.random.IntN(8) == 0 {
				w.late = append(w.late, w.commitOf(a, p, a.held[p]))
			} else {
				w.commit(a, p, a.held[p])
			}
		}
	}
	return nil
}

func (w *world) deliver(p Partition, off int64) {
	for off >= int64(len(w.delivered[p])) {
		w.delivered[p] = append(w.delivered[p], 0)
	}
	w.delivered[p][off]++
	for w.whole[p] < int64(len(w.delivered[p])) && w.delivered[p][w.whole[p]] > 0 {
		w.whole[p]++
	}
}

// revoke commits and gives up what s asks for.
func (w *world) revoke(a *actor, s Step) {
	for _, grant := range s.Revoked {
		if w.random.IntN(2) == 0 { // it is sent twice, once by a slow way
			w.late = append(w.late, w.commitOf(a, grant.Partition, grant.Epoch))
		}
		w.commit(a, grant.Partition, grant.Epoch)
		delete(a.held, grant.Partition)
	}
	if give := append(slices.Clone(s.Revoked), s.Unused...); len(give) > 0 {
		slices.SortFunc(give, func(x, y Grant) int { return x.Partition.Compare(y.Partition) })
		w.state.Apply(w.now, Release{Group: modelGroup, Member: a.id, Grants: give})
	}
}

func (w *world) commitOf(a *actor, p Partition, epoch int64) Commit {
	return Commit{Group: modelGroup, Member: a.id, Positions: []Committed{{Grant: Grant{p, epoch}, Position: Position{Offset: a.next[p]}}}}
}

func (w *world) commit(a *actor, p Partition, epoch int64) {
	w.state.Apply(w.now, w.commitOf(a, p, epoch))
}

// deliverLate lets commits arrive that were sent long ago: accepted or refused, they
// must not take the group back. One of the grant that still holds may be behind its
// own member's later one; that is the member's own doing, and left out.
func (w *world) deliverLate() {
	for len(w.late) > 0 && w.random.IntN(2+len(w.late)) == 0 {
		i := w.random.IntN(len(w.late))
		c := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		g := w.group()
		at := c.Positions[0]
		if g != nil && g.Owners[at.Partition] == (Owner{Member: c.Member, Epoch: at.Epoch}) && g.Positions[at.Partition].Offset > at.Position.Offset {
			continue
		}
		w.state.Apply(w.now, c)
	}
}

// check holds after every step.
func (w *world) check() error {
	g := w.group()
	if g == nil {
		return nil
	}
	if (g.Idle == 0) != (len(g.Members) > 0) || g.TargetEpoch > g.Epoch {
		return fmt.Errorf("idle %d with %d members, target of %d at %d", g.Idle, len(g.Members), g.TargetEpoch, g.Epoch)
	}
	for p, o := range g.Owners {
		if _, ok := g.Members[o.Member]; !ok {
			return fmt.Errorf("%v is owned by %d, which is no member", p, o.Member)
		}
	}
	for p, at := range g.Positions {
		if at.Offset > w.whole[p] {
			return fmt.Errorf("%v is committed at %d, record %d was never delivered", p, at.Offset, w.whole[p])
		}
	}
	return nil
}

// back tells whether a position went back between two looks.
func back(before map[Partition]Position, g *Group) error {
	for p, at := range before {
		if g.Positions[p].Offset < at.Offset {
			return fmt.Errorf("the position of %v went back from %d to %d", p, at.Offset, g.Positions[p].Offset)
		}
	}
	return nil
}

// history runs one history to its end: disturbed, then calm until all is read.
func history(seed uint64, r rules) error {
	w := newWorld(seed, r)
	w.add()
	disturbed := 60 + w.random.IntN(200)
	for range disturbed {
		var before map[Partition]Position
		if g := w.group(); g != nil {
			before = maps.Clone(g.Positions)
		}
		if err := w.step(); err != nil {
			return err
		}
		if g := w.group(); g != nil {
			if err := back(before, g); err != nil {
				return err
			}
		}
	}
	w.calm = true
	for _, a := range w.actors {
		a.slow = 0
	}
	if !slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.dead && a.sub.Pattern != "" }) {
		w.add()
		a := w.actors[len(w.actors)-1]
		a.sub = Subscription{Pattern: "t"}
	}
	// The bound: the session of who died, and a few rounds of everybody.
	deadline := w.now + 2*modelSession
	for w.now < deadline {
		if err := w.step(); err != nil {
			return err
		}
		w.pollAll()
	}
	g := w.group()
	if g.Phase() != Stable {
		return fmt.Errorf("the group is %v at the end of the bound: %+v", g.Phase(), g)
	}
	for t, n := range w.partitions {
		for i := range n {
			p := Partition{t, i}
			if o, owned := g.Owners[p]; !owned || !slices.ContainsFunc(w.actors, func(a *actor) bool { return a.id == o.Member && a.held[p] == o.Epoch && !a.dead }) {
				return fmt.Errorf("%v is owned by nobody who is there", p)
			}
		}
	}
	for range 20_000 {
		if w.drained() {
			break
		}
		if err := w.step(); err != nil {
			return err
		}
		w.pollAll()
	}
	for p, end := range w.ends {
		if w.whole[p] < end {
			return fmt.Errorf("record %d of %v was skipped", w.whole[p], p)
		}
		for off, n := range w.delivered[p] {
			switch {
			case n > w.grants[p]:
				return fmt.Errorf("record %d of %v was delivered %d times by %d owners", off, p, n, w.grants[p])
			case n > 1 && w.gentle:
				return fmt.Errorf("record %d of %v was delivered %d times, and everybody left in order", off, p, n)
			}
		}
	}
	return nil
}

func (w *world) drained() bool {
	for p, end := range w.ends {
		if w.whole[p] < end {
			return false
		}
	}
	return true
}

func (w *world) pollAll() {
	for _, a := range w.actors {
		if !a.dead {
			a.polled = w.now
		}
	}
}

// In random histories of joins, leaves, kills, slow members, expiries, restarts, new
// partitions and late commits no partition has two owners in an epoch, every one is
// owned within a bound after the last change, no record is skipped, none is delivered
// more than once by each owner, and no position goes back.
func TestRandomHistories(t *testing.T) {
	n := *modelHistories
	if n == 0 {
		n = 2000
		if testing.Short() {
			n = 300
		}
	}
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("%d histories from seed %d on (-group.seed)", n, seed)
	for i := range n {
		if err := history(seed+uint64(i), rules{}); err != nil {
			t.Fatalf("seed %d: %v", seed+uint64(i), err)
		}
	}
}

// The histories see each rule of the protocol when it is taken out.
func TestHistoriesSeeEveryRule(t *testing.T) {
	for name, r := range map[string]rules{
		"grant before release":        {grantBeforeRelease: true},
		"accept an older grant":       {acceptStaleEpoch: true},
		"accept who is not the owner": {acceptNotOwner: true, acceptStaleEpoch: true},
		"an expired member keeps all": {keepOnExpiry: true},
		"a target for an older group": {anyEpochTarget: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3000) {
				if err := history(seed, r); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("3000 histories saw no difference")
		})
	}
}
