package main

import (
	"context"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

// send sends the rows that are not in the topic yet. A key always goes to the
// same partition and a partition keeps the order of the file, so the number of
// records that a partition holds tells which of its rows are there.
func send(ctx context.Context, node *thalweg.Node, rows []Flight, p *progress) (err error) {
	if err := node.Create(ctx, flights); err != nil {
		return err
	}
	there := make([]int64, flights.Spec().Partitions)
	for i := range there {
		partition, err := node.Log().Partition(topic.TopicPartition{Topic: flights.Name(), Partition: topic.PartitionID(i)})
		if err != nil {
			return err
		}
		there[i] = int64(partition.End().Offset)
	}

	producer, err := node.Producer(flights)
	if err != nil {
		return err
	}
	defer func() {
		if closed := producer.Close(); err == nil {
			err = closed
		}
	}()
	for _, f := range rows {
		i := topic.Partition([]byte(f.Key()), len(there))
		if there[i] > 0 {
			there[i]--
			continue
		}
		if err := producer.Queue(ctx, f.Key(), f); err != nil {
			return err
		}
		p.row()
	}
	return producer.Flush(ctx)
}
