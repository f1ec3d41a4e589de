package bench

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// latest is the job whose state is the newest event of each user, 16 B of key and 100 B of
// value; what it puts out are the events of bots.
func latest(every checkpoint.Config) *stream.Topology {
	app := stream.New("latest").Checkpoint(every).Use[user](userCodec).Use[event](eventCodec)
	app.Stream(latestEvents).GroupByKey().Reduce(func(_, e event) event { return e }).As("latest").
		ToStream().Filter(func(e event) bool { return e.Bot }).To(bots)
	return app
}

var (
	latestEvents = topic.New[user, event]("latest-in").KeyCodec(userCodec).ValueCodec(eventCodec).Partitions(2)
	bots         = topic.New[user, event]("bots").KeyCodec(userCodec).ValueCodec(eventCodec)
)

// openLatest opens a node and starts the job there.
func openLatest(o thalweg.Options, dir string, every checkpoint.Config) (n *thalweg.Node, job *stream.Job, err error) {
	if n, err = o.Open(dir); err != nil {
		return nil, nil, err
	}
	job, err = n.Start(bgContext, latest(every))
	return n, job, err
}

// latestWriter writes events of users by their number, in batches, each into the partition of its
// user.
type latestWriter struct {
	n        *thalweg.Node
	builders [2]log.BatchBuilder
	buf      []byte
}

func (w *latestWriter) add(number int, e event) error {
	e.User = keyNumber(number)
	w.buf, _ = appendEvent(w.buf[:0], e)
	p := number % 2
	w.builders[p].Add(int64(number), e.User[:], w.buf, nil)
	if w.builders[p].Len() < 500 {
		return nil
	}
	return w.write(p)
}

func (w *latestWriter) flush() error {
	for p := range w.builders {
		if err := w.write(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *latestWriter) write(p int) error {
	if w.builders[p].Len() == 0 {
		return nil
	}
	part, err := w.partition(p)
	if err == nil {
		_, err = part.Write(w.builders[p].Finish(log.Producer{ID: log.NoProducer}))
	}
	w.builders[p].Reset()
	return err
}

func (w *latestWriter) partition(p int) (*log.Partition, error) {
	return w.n.Log().Partition(log.TopicPartition{Topic: latestEvents.Name(), Partition: log.PartitionID(p)})
}

// processed waits until the tasks of a job have read so many records in all.
func processed(b *testing.B, job *stream.Job, records int64) {
	b.Helper()
	for {
		var read int64
		for _, t := range job.Status().Tasks {
			read += t.Records
		}
		if read == records {
			return
		}
		select {
		case <-job.Done():
			b.Fatal(job.Wait())
		case <-time.After(time.Millisecond):
		}
	}
}
