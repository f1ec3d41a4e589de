package peers

import (
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

type raftWAL struct {
	log  *wal.WAL
	logs []*raft.Log
	last uint64
}

func openRaftWAL(dir string, _ bool) (store, error) {
	l, err := wal.Open(dir)
	return &raftWAL{log: l}, err
}

func (s *raftWAL) append(values [][]byte) error {
	s.logs = s.logs[:0]
	for _, v := range values {
		s.last++
		s.logs = append(s.logs, &raft.Log{Index: s.last, Term: 1, Data: v})
	}
	return s.log.StoreLogs(s.logs)
}

func (s *raftWAL) read(f func(value []byte)) error {
	for i := uint64(1); i <= s.last; i++ {
		var l raft.Log
		if err := s.log.GetLog(i, &l); err != nil {
			return err
		}
		f(l.Data)
	}
	return nil
}

func (s *raftWAL) close() error { return s.log.Close() }
