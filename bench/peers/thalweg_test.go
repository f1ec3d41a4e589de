package peers

import (
	"context"
	"errors"
	"io"

	"github.com/thalweg/thalweg/log"
)

type thalwegLog struct {
	log     *log.Log
	p       *log.Partition
	builder log.BatchBuilder
	synced  bool
}

func openThalweg(dir string, synced bool) (store, error) {
	l, err := log.Open(dir, log.Options{})
	if err != nil {
		return nil, err
	}
	spec := log.TopicSpec{Partitions: 1}
	if synced {
		spec.Sync = log.SyncAlways
	}
	if err := l.Create("peers", spec); err != nil {
		return nil, err
	}
	p, err := l.Partition(log.TopicPartition{Topic: "peers"})
	return &thalwegLog{log: l, p: p, synced: synced}, err
}

func (s *thalwegLog) append(values [][]byte) error {
	for _, v := range values {
		s.builder.Add(0, nil, v, nil)
	}
	_, err := s.p.Write(s.builder.Finish(log.Producer{ID: log.NoProducer}))
	s.builder.Reset()
	if err == nil && s.synced {
		err = s.p.Sync(context.Background())
	}
	return err
}

func (s *thalwegLog) read(f func(value []byte)) error {
	r := s.p.Reader(0, log.ReadCommitted)
	defer r.Close()
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		it := b.Records()
		for it.Next() {
			f(it.Value)
		}
		if it.Err() != nil {
			return it.Err()
		}
	}
}

func (s *thalwegLog) close() error { return s.log.Close() }
