package checkpoint

import "github.com/thalweg/thalweg/log"

// JobState returns the newest complete checkpoint of a job and where it stands in each of the
// changelogs it names, those of steps that the job has no more as well; ok is false for a job
// that has completed none.
func (p *Plane) JobState(job string) (id ID, changelogs map[log.TopicPartition]log.Position, ok bool) {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	j := p.state.jobs[job]
	if j == nil || len(j.checkpoints) == 0 {
		return ID{}, nil, false
	}
	newest := join(j.checkpoints)
	changelogs = make(map[log.TopicPartition]log.Position)
	for _, r := range newest.reports {
		for _, c := range r.Changelogs {
			if end, ok := changelogs[c.Partition]; !ok || end.Offset < c.End.Offset {
				changelogs[c.Partition] = c.End
			}
		}
	}
	return newest.id, changelogs, true
}

// ReadsIntoState returns a job that reads a topic into state without a shuffle: by its
// newest checkpoint, a task that reads a partition of the topic has a changelog of its
// own. The keys of the shard are those of the partition then, so the topic cannot get
// more partitions while the job is known. A job that has not completed a
// checkpoint yet has no state, and is not found.
func (p *Plane) ReadsIntoState(topic string) (job string, found bool) {
	p.stateMu.RLock()
	defer p.stateMu.RUnlock()
	for name, j := range p.state.jobs {
		if len(j.checkpoints) == 0 {
			continue
		}
		for _, r := range join(j.checkpoints).reports {
			if len(r.Changelogs) == 0 {
				continue
			}
			for _, in := range r.Inputs {
				if in.Partition.Topic == topic && (!found || name < job) {
					job, found = name, true
				}
			}
		}
	}
	return job, found
}
