package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/topic/codec"
)

// tally is a small value of a key.
type tally struct{ n, sum int64 }

var tallyCodec = codec.Func(
	func(dst []byte, v tally) ([]byte, error) {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v.n))
		return binary.LittleEndian.AppendUint64(dst, uint64(v.sum)), nil
	},
	func(src []byte) (v tally, err error) {
		if len(src) != 16 {
			return v, errors.New("bench: a tally has 16 bytes")
		}
		return tally{int64(binary.LittleEndian.Uint64(src)), int64(binary.LittleEndian.Uint64(src[8:]))}, nil
	})

// keyNumber is a key of 16 bytes. Keys are in no order by their numbers.
func keyNumber(i int) (u user) {
	binary.BigEndian.PutUint64(u[:], uint64(i)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(u[8:], uint64(i))
	return u
}

// openStore opens an empty store over an empty changelog.
func openStore(b *testing.B, backend state.Backend, manual bool) (*state.Store, *log.Partition) {
	b.Helper()
	changelog := openPartition(b, log.TopicSpec{Compact: true})
	return storeOver(b, backend, changelog, manual), changelog
}

func storeOver(b *testing.B, backend state.Backend, changelog *log.Partition, manual bool) *state.Store {
	b.Helper()
	db, err := backend.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	s, err := state.OpenStore(state.StoreOptions{DB: db, Changelog: changelog, Name: "bench", Manual: manual, Linger: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(s.Close(), db.Close()); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkTable looks keys up in the overlay of a task, and changes them; "ahead" says a batch
// of 256 keys that are about to be changed before. Keys come evenly, hashing is included. The
// floor is the same with a Go map.
func BenchmarkTable(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		store, _ := openStore(b, state.Memory(), true)
		table := state.NewTable[tally](store, tallyCodec)
		byMap := make(map[user]*tally, keys)
		for i := range keys {
			k := keyNumber(i)
			v, _, err := table.Update(state.Hash(k[:]), k[:])
			if err != nil {
				b.Fatal(err)
			}
			v.n = int64(i)
			byMap[k] = &tally{n: int64(i)}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		sequence := make([]user, 1<<20)
		for i := range sequence {
			sequence[i] = keyNumber(rng.IntN(keys))
		}
		at := func(i int) *user { return &sequence[i&(len(sequence)-1)] }

		floor := map[string]float64{
			"get": everyOf(func(i int) { sink += uint32(byMap[*at(i)].n) }),
			"put": everyOf(func(i int) { byMap[*at(i)].sum++ }),
		}
		floor["put-ahead"] = floor["put"]
		bench := func(name string, f func(i int) int64) {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				start := time.Now()
				for b.Loop() {
					k := at(i)
					if want := int64(binary.BigEndian.Uint64(k[8:])); f(i) != want {
						b.Fatal("another value than was put")
					}
					i++
				}
				each := float64(time.Since(start)) / float64(i)
				b.ReportMetric(floor[name], "floor-ns/op")
				b.ReportMetric(100*floor[name]/each, "%floor")
			})
		}
		bench("get", func(i int) int64 {
			k := at(i)
			v, _, _ := table.Get(state.Hash(k[:]), k[:])
			return v.n
		})
		bench("put", func(i int) int64 {
			k := at(i)
			v, _, _ := table.Update(state.Hash(k[:]), k[:])
			v.sum++
			return v.n
		})
		var hashes [256]uint64
		bench("put-ahead", func(i int) int64 {
			if i%len(hashes) == 0 {
				for j := range hashes {
					k := at(i + j)
					hashes[j] = state.Hash(k[:])
				}
				table.Touch(hashes[:])
			}
			v, _, _ := table.Update(hashes[i%len(hashes)], at(i)[:])
			v.sum++
			return v.n
		})
	}
}

// everyOf is what a call of f takes, in ns, over two million of them.
func everyOf(f func(i int)) float64 {
	const calls = 2_000_000
	start := time.Now()
	for i := range calls {
		f(i)
	}
	return float64(time.Since(start)) / calls
}

// changedKeys is how many keys change between two commits of BenchmarkTableCommit.
const changedKeys = 100_000

// BenchmarkTableCommit changes 100,000 keys and writes what changed to a changelog, as a
// checkpoint does; the commit alone is on the clock. An operation is one. The floor encodes the same
// changes out of a slice and writes them to a log.
func BenchmarkTableCommit(b *testing.B) {
	store, changelog := openStore(b, state.Memory(), true)
	table := state.NewTable[tally](store, tallyCodec)
	byHand := make([]tally, changedKeys)
	other := openPartition(b, log.TopicSpec{Compact: true})
	var floor, ours time.Duration
	commits := 0
	var builder log.BatchBuilder
	write := func(p *log.Partition, least int) {
		if builder.Len() == 0 || builder.Size() < least {
			return
		}
		if _, err := p.Write(builder.Finish(log.Producer{ID: log.NoProducer})); err != nil {
			b.Fatal(err)
		}
		builder.Reset()
	}
	for b.Loop() {
		b.StopTimer()
		commits++
		for i := range changedKeys {
			k := keyNumber(i)
			v, _, err := table.Update(state.Hash(k[:]), k[:])
			if err != nil {
				b.Fatal(err)
			}
			v.n++
			byHand[i].n++
		}
		start := time.Now()
		var key, value []byte
		for i := range byHand {
			k := keyNumber(i)
			key = append(append(key[:0], 1), k[:]...)
			value, _ = tallyCodec.Append(append(value[:0], 1), byHand[i])
			builder.Add(0, key, value, nil)
			write(other, 256<<10)
		}
		write(other, 0)
		floor += time.Since(start)
		b.StartTimer()
		start = time.Now()
		entries := 0
		err := table.Barrier(int64(commits), func(key, value []byte) error {
			entries++
			builder.Add(0, key, value, nil)
			write(changelog, 256<<10)
			return nil
		})
		write(changelog, 0)
		ours += time.Since(start)
		b.StopTimer()
		mark := state.Mark{Attempt: 1, N: int64(commits), End: changelog.End()}
		if err := errors.Join(err, store.Follow(b.Context(), mark)); err != nil || entries != changedKeys {
			b.Fatal(entries, err)
		}
		table.Passed(mark)
		b.StartTimer()
	}
	k := keyNumber(7)
	stored, ok, err := store.Get(k[:])
	if v, _ := tallyCodec.Decode(stored); err != nil || !ok || v.n != int64(commits) {
		b.Fatalf("a key changed %d times is %v in the store: %v", commits, v, err)
	}
	entries := float64(changedKeys) * float64(commits)
	b.ReportMetric(entries/ours.Seconds(), "entries/s")
	b.ReportMetric(entries/floor.Seconds(), "floor-entries/s")
	b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%floor")
}
