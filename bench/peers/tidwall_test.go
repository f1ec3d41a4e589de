package peers

import "github.com/tidwall/wal"

type tidwallLog struct {
	log   *wal.Log
	batch wal.Batch
	last  uint64
}

func openTidwall(dir string, synced bool) (store, error) {
	l, err := wal.Open(dir, &wal.Options{NoSync: !synced, NoCopy: true})
	return &tidwallLog{log: l}, err
}

func (s *tidwallLog) append(values [][]byte) error {
	for _, v := range values {
		s.last++
		s.batch.Write(s.last, v)
	}
	err := s.log.WriteBatch(&s.batch)
	s.batch.Clear()
	return err
}

func (s *tidwallLog) read(f func(value []byte)) error {
	for i := uint64(1); i <= s.last; i++ {
		v, err := s.log.Read(i)
		if err != nil {
			return err
		}
		f(v)
	}
	return nil
}

func (s *tidwallLog) close() error { return s.log.Close() }
