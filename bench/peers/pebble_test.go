package peers

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// pebbleLog keeps records in a key-value store under their number.
type pebbleLog struct {
	db   *pebble.DB
	how  *pebble.WriteOptions
	last uint64
}

func openPebble(dir string, synced bool) (store, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, MemTableSize: 64 << 20})
	how := pebble.NoSync
	if synced {
		how = pebble.Sync
	}
	return &pebbleLog{db: db, how: how}, err
}

// quiet leaves out what Pebble tells of its work.
type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

func (s *pebbleLog) append(values [][]byte) error {
	b := s.db.NewBatch()
	var key [8]byte
	for _, v := range values {
		s.last++
		binary.BigEndian.PutUint64(key[:], s.last)
		if err := b.Set(key[:], v, nil); err != nil {
			return err
		}
	}
	return s.db.Apply(b, s.how)
}

func (s *pebbleLog) read(f func(value []byte)) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		f(it.Value())
	}
	return it.Error()
}

func (s *pebbleLog) close() error { return s.db.Close() }
