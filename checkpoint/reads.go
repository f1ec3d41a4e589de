package checkpoint

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
