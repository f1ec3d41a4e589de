package peers

import (
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

type etcdWAL struct {
	dir   string
	log   *wal.WAL
	state raftpb.HardState
	last  uint64
}

func openEtcd(dir string, synced bool) (store, error) {
	dir = filepath.Join(dir, "wal")
	l, err := wal.Create(zap.NewNop(), dir, nil)
	if err != nil {
		return nil, err
	}
	if !synced {
		l.SetUnsafeNoFsync()
	}
	return &etcdWAL{dir: dir, log: l}, nil
}

func (s *etcdWAL) append(values [][]byte) error {
	entries := make([]*raftpb.Entry, len(values))
	term := uint64(1)
	for i, v := range values {
		s.last++
		index := s.last
		entries[i] = &raftpb.Entry{Term: &term, Index: &index, Data: v}
	}
	last := s.last
	s.state.Term, s.state.Commit = &term, &last
	return s.log.Save(&s.state, entries)
}

func (s *etcdWAL) read(f func(value []byte)) error {
	r, err := wal.OpenForRead(zap.NewNop(), s.dir, &walpb.Snapshot{})
	if err != nil {
		return err
	}
	defer r.Close()
	_, _, entries, err := r.ReadAll()
	if err != nil {
		return err
	}
	for _, e := range entries {
		f(e.Data)
	}
	return nil
}

func (s *etcdWAL) close() error { return s.log.Close() }
