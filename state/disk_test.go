package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// smallDisk is Disk on fs with memtables so small that a few batches fill one and
// many are larger than it.
func smallDisk(fs vfs.FS) *diskBackend {
	b := newDisk(1<<20, fs, nil)
	b.memTableSize = 32 << 10
	return b
}

// crashes is a file system that is copied as a crash would leave it, before
// every operation that changes it.
type crashes struct {
	vfs.FS
	rng *rand.Rand

	mu     sync.Mutex
	every  int
	ops    int
	copies []*vfs.MemFS
}

// newCrashes takes a copy before every nth operation. Pebble's goroutines draw
// from a source of their own.
func newCrashes(rng *rand.Rand, every int) *crashes {
	c := &crashes{rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), every: every}
	mem := vfs.NewCrashableMem()
	c.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.ops++; c.ops%c.every == 0 {
				c.copies = append(c.copies, mem.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: c.rng.IntN(3) * 50,
					RNG:                 rand.New(rand.NewPCG(c.rng.Uint64(), 0)),
				}))
			}
		}
		return nil
	}))
	return c
}

// TestDiskCrashKeepsPrefix shows what stores build on: stopped at operations on
// its files, every one with -rounds=3, with unsynced data kept or lost, a database without a write-ahead
// log opens with a prefix of the batches applied, each whole, also those larger
// than a memtable.
func TestDiskCrashKeepsPrefix(t *testing.T) {
	rng := newRand(t)
	fs := newCrashes(rng, max(1, 3 / *roundFlag))
	db, err := smallDisk(fs).Open("db")
	require.NoError(t, err)
	const keys = 40
	states := []map[uint64]uint64{{}} // after n batches, key to batch that wrote it last
	number := []byte("\x00number")
	for n := uint64(1); n <= 120; n++ {
		state := make(map[uint64]uint64)
		b := Batch{Clear: rng.IntN(20) == 0}
		if !b.Clear {
			for k, v := range states[n-1] {
				state[k] = v
			}
		}
		b.Entries = append(b.Entries, Entry{Key: number, Value: binary.BigEndian.AppendUint64(nil, n)})
		size := []int{0, 100, 2000}[rng.IntN(3)] // up to 80 kB a batch
		for k := range uint64(keys) {
			e := Entry{Key: fmt.Appendf(nil, "key%03d", k)}
			switch rng.IntN(3) {
			case 0:
				continue
			case 1:
				e.Value = binary.BigEndian.AppendUint64(make([]byte, size), n)
				state[k] = n
			default:
				delete(state, k)
			}
			b.Entries = append(b.Entries, e)
		}
		require.NoError(t, db.Apply(b))
		states = append(states, state)
		if rng.IntN(30) == 0 {
			flushed(t, db)
		}
	}
	require.NoError(t, db.Close())
	last := uint64(0)
	seen := make(map[uint64]bool)
	for i, crashed := range fs.copies {
		db, err := smallDisk(crashed).Open("db")
		require.NoError(t, err, "after operation %d", i)
		n := uint64(0)
		got := make(map[uint64]uint64)
		for e, err := range db.Range(nil, nil) {
			require.NoError(t, err)
			v := binary.BigEndian.Uint64(e.Value[len(e.Value)-8:])
			if string(e.Key) == string(number) {
				n = v
				continue
			}
			var k uint64
			_, err := fmt.Sscanf(string(e.Key), "key%03d", &k)
			require.NoError(t, err)
			got[k] = v
		}
		require.Equal(t, states[n], got, "after operation %d, batch %d", i, n)
		seen[n] = true
		last = max(last, n)
		require.NoError(t, db.Close())
	}
	t.Logf("%d crashes, %d different batches reached", len(fs.copies), len(seen))
	require.Greater(t, len(seen), 5, "the database was flushed now and then")
}

// TestDiskFailedWrite shows that a disk that fails is an error of a later Apply
// and of Close, that nothing hangs and nothing ends the process, and that the
// database opens again with what it had when the disk comes back.
func TestDiskFailedWrite(t *testing.T) {
	errFull := errors.New("no space left on device")
	for _, failing := range []string{"sst", "MANIFEST"} {
		t.Run(failing, func(t *testing.T) {
			mem := vfs.NewMem()
			toggle := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
				base := mem.PathBase(op.Path)
				hit := strings.HasSuffix(base, ".sst")
				if failing == "MANIFEST" {
					hit = strings.HasPrefix(base, failing)
				}
				if hit && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					return errFull
				}
				return nil
			})}
			db, err := smallDisk(errorfs.Wrap(mem, toggle)).Open("db")
			require.NoError(t, err)
			require.NoError(t, db.Apply(Batch{Entries: []Entry{{Key: []byte("before"), Value: []byte("1")}}}))
			require.NoError(t, db.(*diskDB).flushAndWait())
			toggle.On()
			for i := 0; ; i++ {
				err = db.Apply(Batch{Entries: []Entry{{Key: fmt.Appendf(nil, "key%d", i), Value: make([]byte, 4<<10)}}})
				if err != nil {
					break
				}
				if i == 2 {
					_, err := db.(Flusher).Flush()
					require.NoError(t, err)
					<-db.(*diskDB).failing
				}
			}
			require.ErrorContains(t, err, errFull.Error())
			value, ok, err := db.Get([]byte("before"))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, "1", string(value))
			require.Error(t, db.Close())
			toggle.Off()
			db, err = smallDisk(mem).Open("db")
			require.NoError(t, err)
			_, ok, err = db.Get([]byte("before"))
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, db.Close())
		})
	}
}

// flushed makes all that was applied durable.
func flushed(t testing.TB, db DB) {
	t.Helper()
	done, err := db.(Flusher).Flush()
	require.NoError(t, err)
	<-done
}
