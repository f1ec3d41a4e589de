package checkpoint

import (
	"strings"

	"github.com/thalweg/thalweg/log"
)

// internalPrefix begins the names of topics that are not a user's: changelogs, and
// the metadata log.
const internalPrefix = "__"

// limitCompaction tells the log how far it may compact a partition.
//
// A store is brought to a checkpoint by a replay of its changelog up to where the
// checkpoint ends, and for each of them that may still be asked for, the newest
// record of each key below that must be there: records are compacted only up to the
// end of the oldest checkpoint retained. A deletion stays until the store that
// follows the changelog has it on disk; of a job that does not run nobody knows.
// Changelogs that no checkpoint names stay as they are.
func (p *Plane) limitCompaction(tp log.TopicPartition) log.CompactionLimit {
	if !strings.HasPrefix(tp.Topic, internalPrefix) {
		return log.NoCompactionLimit()
	}
	var limit log.CompactionLimit
	p.stateMu.RLock()
	if p.state != nil {
		limit.Records = p.state.replayed(tp)
	}
	durable := p.followers[tp]
	p.stateMu.RUnlock()
	if durable != nil {
		limit.Horizon = durable()
	}
	return limit
}

// replayed is the offset of a changelog up to which every replay goes that is still
// possible, 0 where that is not known.
func (m *metadata) replayed(tp log.TopicPartition) (to log.Offset) {
	for _, j := range m.jobs {
		if len(j.checkpoints) == 0 {
			continue
		}
		for _, r := range j.checkpoints[0].reports {
			for _, c := range r.Changelogs {
				if c.Partition == tp {
					to = max(to, c.End.Offset)
				}
			}
		}
	}
	return to
}

// FollowChangelog says that a store follows a changelog of the job, and how: durable is
// the offset below which the store has all and keeps it through a crash. It is called
// from other goroutines, until the session is closed.
func (s *Session) FollowChangelog(tp log.TopicPartition, durable func() log.Offset) {
	s.p.stateMu.Lock()
	defer s.p.stateMu.Unlock()
	if s.p.followers == nil {
		s.p.followers = make(map[log.TopicPartition]func() log.Offset)
	}
	s.p.followers[tp] = durable
	s.followed = append(s.followed, tp)
}

// unfollow takes back all that FollowChangelog said.
func (s *Session) unfollow() {
	s.p.stateMu.Lock()
	defer s.p.stateMu.Unlock()
	for _, tp := range s.followed {
		delete(s.p.followers, tp)
	}
	s.followed = nil
}
