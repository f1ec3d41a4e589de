package group

// Command is one step of a State. Those below are all there are.
type Command interface{ command() }

// Join makes Member a member of Group, or changes the subscription of one that it is
// already. The group need not exist. A static id that was left behind is taken over
// with all its partitions; one whose member is there is ErrStaticInUse.
type Join struct {
	Group        string
	Member       MemberID
	Static       string
	Subscription Subscription
	Session      int64 // ms
}

// Leave ends a membership: the member left, or gave no sign of life for its session.
type Leave struct {
	Group  string
	Member MemberID
}

// Away says that the program of a static member is gone. The member keeps its
// partitions until it joins again or a Leave ends it.
type Away struct {
	Group  string
	Member MemberID
}

// SetTarget says which member is to own each partition. It is accepted only if Epoch
// is still the group's.
type SetTarget struct {
	Group  string
	Epoch  int64
	Target map[Partition]MemberID
}

// Release gives up partitions under their grants, ascending by partition. A grant
// that is over already is passed over.
type Release struct {
	Group  string
	Member MemberID
	Grants []Grant
}

// Commit moves positions, all of them or none. Each belongs to the grant its
// partition was read under. Member zero is no member but whoever administers the
// group: it is accepted only while the group has no members, and makes the group
// where there is none.
type Commit struct {
	Group     string
	Member    MemberID
	Positions []Committed // ascending by partition, each once
}

// Committed is the position of one partition.
type Committed struct {
	Grant
	Position Position
}

// Delete forgets a group that has no members.
type Delete struct {
	Group string
}

// Expire forgets a group that has had no members since Idle.
type Expire struct {
	Group string
	Idle  int64
}

// ForgetTopic takes a topic that is being deleted out of every group.
type ForgetTopic struct {
	Topic string
}

// Restart says that the process that wrote all commands before is gone, and its
// members with it: static ones are away, the others are over.
type Restart struct{}

func (Join) command()        {}
func (Leave) command()       {}
func (Away) command()        {}
func (SetTarget) command()   {}
func (Release) command()     {}
func (Commit) command()      {}
func (Delete) command()      {}
func (Expire) command()      {}
func (ForgetTopic) command() {}
func (Restart) command()     {}
