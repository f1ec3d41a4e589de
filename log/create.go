package log

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Create makes a topic. One that exists with the same settings is no error; with
// others it is ErrTopicExists, naming the fields.
//
// Partition directories of that name that are there already, copied from a Kafka
// broker say, are adopted with all they hold, provided that none of it is damaged. A
// tail that a crash tore is cut off, and told by Partition.Recovery.
func (l *Log) Create(topic string, spec TopicSpec) error {
	return l.CreateAll(map[string]TopicSpec{topic: spec})
}

// CreateAll is Create for several topics at once: all of them are made or, after an
// error or a crash, none. It waits for the disk as often as for one.
func (l *Log) CreateAll(topics map[string]TopicSpec) error {
	for topic, spec := range topics {
		if err := ValidateName(topic); err != nil {
			return err
		}
		if err := spec.validate(); err != nil {
			return err
		}
		if spec.Remote && l.options.Remote == nil {
			return fmt.Errorf("log: topic %q has Remote set, but there is no object store: set Options.Remote", topic)
		}
	}
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.isClosed {
		return ErrClosed
	}
	missing := make(map[string]TopicSpec)
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if l.readOnly {
			return fmt.Errorf("create topic %q: %w", topic, ErrReadOnly)
		}
		has, ok := l.registry[topic]
		if !ok {
			missing[topic] = topics[topic]
			continue
		}
		if has.Deleting {
			return fmt.Errorf("create topic %q: its deletion was not completed: %w", topic, l.removeTopicNow(topic))
		}
		if diffs := has.Spec.differences(topics[topic]); len(diffs) > 0 {
			return fmt.Errorf("%w: topic %q: %s: ask for the settings it has, or change them with Alter", ErrTopicExists, topic, strings.Join(diffs, "; "))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var made []*Partition
	var err error
	for _, topic := range slices.Sorted(maps.Keys(missing)) {
		opened, openErr := l.createPartitions(topic, missing[topic], 0)
		made = append(made, opened...)
		if openErr != nil {
			err = fmt.Errorf("create topic %q: %w", topic, openErr)
			break
		}
	}
	if err == nil {
		if err = l.register(missing, made); err != nil {
			err = fmt.Errorf("create topics: %w", err)
		}
	}
	if err != nil {
		for _, p := range made {
			err = errors.Join(err, p.release())
		}
		return err
	}
	l.topicsChanged.broadcast()
	return nil
}

// createPartitions makes the directories of a topic's partitions, from the given one
// on, and opens them. They are not durable yet.
func (l *Log) createPartitions(topic string, spec TopicSpec, from int) (opened []*Partition, err error) {
	for i := from; i < spec.Partitions; i++ {
		p := newPartition(l, TopicPartition{Topic: topic, Partition: PartitionID(i)}, spec)
		if err := l.options.FS.MkdirAll(p.dir); err != nil {
			return opened, err
		}
		if err := p.open(openState{recoveryPoint: -1, start: -1, adopt: true}); err != nil {
			return opened, err
		}
		opened = append(opened, p)
	}
	return opened, nil
}

// register makes the settings those of the topics, durably, and adds partitions to them.
func (l *Log) register(specs map[string]TopicSpec, added []*Partition) error {
	// A topic in the registry has all its directories, and of those that were adopted it
	// is known where they start.
	if err := l.options.FS.SyncDir(l.dir); err != nil {
		return err
	}
	if err := l.checkpoint(added); err != nil {
		return err
	}
	entries := make(map[string]*registryTopic, len(specs))
	topics := make(map[string]*topicPartitions, len(specs))
	for topic, spec := range specs {
		entries[topic] = &registryTopic{Spec: spec}
		topics[topic] = &topicPartitions{spec: spec}
		if has := l.topics[topic]; has != nil {
			topics[topic].partitions = slices.Clone(has.partitions)
		}
	}
	if err := l.writeRegistry(entries); err != nil {
		return err
	}
	for _, p := range added {
		p.producers.setOwners(l.owners)
		topics[p.name.Topic].partitions = append(topics[p.name.Topic].partitions, p)
	}
	for name, topic := range topics {
		l.setTopic(name, topic)
	}
	return nil
}
