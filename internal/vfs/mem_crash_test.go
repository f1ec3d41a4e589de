package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// crashes is how many seeds a test tries that expects to see every outcome.
const crashes = 200

// fill returns n bytes of c.
func fill(c byte, n int) string { return strings.Repeat(string(c), n) }

// synced makes a file of that content durable, its name too.
func synced(t testing.TB, m *Mem, name, content string) File {
	t.Helper()
	f := create(t, m, name)
	write(t, f, 0, content)
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir(path.Dir(name)))
	return f
}

// dump describes everything that can be read from m.
func dump(t testing.TB, m *Mem) string {
	t.Helper()
	var b strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		names, err := m.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			full := path.Join(dir, name)
			if _, err := m.List(full); err == nil {
				fmt.Fprintf(&b, "%s/\n", full)
				walk(full)
				continue
			}
			fmt.Fprintf(&b, "%s %x\n", full, content(t, m, full))
		}
	}
	walk("")
	return b.String()
}

// outcomes counts what describe says of the crashes of m.
func outcomes(t testing.TB, m *Mem, describe func(after *Mem) string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for seed := range uint64(crashes) {
		seen[describe(m.Crash(seed))]++
	}
	return seen
}

func kinds(seen map[string]int) []string {
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// describe names the content of a file by its runs of equal bytes.
func describe(t testing.TB, name string) func(m *Mem) string {
	return func(m *Mem) string {
		if _, err := m.Size(name); errors.Is(err, fs.ErrNotExist) {
			return "missing"
		}
		s := content(t, m, name)
		if s == "" {
			return "empty"
		}
		var runs []string
		for len(s) > 0 {
			n := len(s) - len(strings.TrimLeft(s, s[:1]))
			c := s[:1]
			if c == "\x00" {
				c = "z"
			}
			runs = append(runs, fmt.Sprintf("%d%s", n, c))
			s = s[n:]
		}
		return strings.Join(runs, " ")
	}
}

// TestSyncedDataSurvivesEveryCrash shows that sync and SyncDir together keep a
// file, through any seed.
func TestSyncedDataSurvivesEveryCrash(t *testing.T) {
	m := NewMem()
	synced(t, m, "f", fill('a', 10_000))
	require.Equal(t, []string{"10000a"}, kinds(outcomes(t, m, describe(t, "f"))))
}

// TestUnsyncedPagesAreKeptDroppedOrTorn shows that all three happen, and that a
// page is torn between sectors only.
func TestUnsyncedPagesAreKeptDroppedOrTorn(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', 2*pageBytes))
	write(t, f, pageBytes, fill('b', pageBytes))
	kept, dropped, torn := 0, 0, 0
	for seed := range uint64(crashes) {
		s := content(t, m.Crash(seed), "f")
		require.Equal(t, fill('a', pageBytes), s[:pageBytes], "seed %d touches a page that was not written", seed)
		switch page := s[pageBytes:]; page {
		case fill('a', pageBytes):
			dropped++
		case fill('b', pageBytes):
			kept++
		default:
			torn++
			for at := 0; at < pageBytes; at += sectorBytes {
				require.Contains(t, []string{fill('a', sectorBytes), fill('b', sectorBytes)}, page[at:at+sectorBytes], "seed %d", seed)
			}
		}
	}
	require.Greater(t, kept, crashes/10)
	require.Greater(t, dropped, crashes/10)
	require.Greater(t, torn, crashes/10)
}

func TestMappedWritesAreLostLikeOthers(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', pageBytes))
	mapped, err := f.Map(1 << 20)
	require.NoError(t, err)
	require.NoError(t, mapped.Write(0, []byte(fill('b', sectorBytes))))
	seen := outcomes(t, m, describe(t, "f"))
	require.Equal(t, []string{"4096a", "512b 3584a"}, kinds(seen))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"512b 3584a"}, kinds(outcomes(t, m, describe(t, "f"))))
}

// TestUnsyncedLength shows that a length can come without the bytes, and bytes
// without the length.
func TestUnsyncedLength(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", "")
	write(t, f, 0, fill('a', sectorBytes))
	require.Equal(t, []string{"512a", "512z", "empty"}, kinds(outcomes(t, m, describe(t, "f"))))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Allocate(2*sectorBytes))
	require.Equal(t, []string{"512a", "512a 512z"}, kinds(outcomes(t, m, describe(t, "f"))))
}

// TestUnsyncedTruncation shows that a file has its old length with its old pages,
// or the new one; what was cut off never shows below a new length.
func TestUnsyncedTruncation(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', 3*pageBytes))
	require.NoError(t, f.Truncate(pageBytes))
	require.Equal(t, []string{"12288a", "4096a"}, kinds(outcomes(t, m, describe(t, "f"))))

	require.NoError(t, f.Allocate(3*pageBytes))
	require.Equal(t, []string{"12288a", "4096a", "4096a 8192z"}, kinds(outcomes(t, m, describe(t, "f"))))

	write(t, f, 2*pageBytes, fill('b', pageBytes))
	seen := outcomes(t, m, describe(t, "f"))
	require.Subset(t, kinds(seen), []string{"12288a", "4096a", "4096a 4096z 4096b"})
	for outcome := range seen {
		if outcome != "12288a" {
			require.True(t, strings.HasPrefix(outcome, "4096a"), outcome)
			require.NotContains(t, outcome[5:], "a", "old bytes in new pages")
		}
	}
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"4096a 4096z 4096b"}, kinds(outcomes(t, m, describe(t, "f"))))
}

// TestTruncationWithinAPage shows that the rest of the last page may be zeroed
// before the length is durable.
func TestTruncationWithinAPage(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', 2*pageBytes))
	require.NoError(t, f.Truncate(sectorBytes))
	seen := outcomes(t, m, describe(t, "f"))
	require.Subset(t, kinds(seen), []string{"8192a", "512a", "512a 3584z 4096a"})
	require.NoError(t, f.Sync())
	require.NoError(t, f.Allocate(pageBytes))
	require.Equal(t, []string{"512a", "512a 3584z"}, kinds(outcomes(t, m, describe(t, "f"))))

	// Whether the file grows again before the sync or after a failed one, what
	// was cut off the page stays away from the new length.
	for _, fail := range []bool{false, true} {
		m := NewMem()
		f := synced(t, m, "f", fill('a', pageBytes))
		require.NoError(t, f.Truncate(sectorBytes))
		if fail {
			m.SetHook(func(op Op) error { return syscall.EIO })
			require.Error(t, f.Sync())
			m.SetHook(nil)
			require.NoError(t, f.Sync())
		}
		require.NoError(t, f.Allocate(2*pageBytes))
		seen := kinds(outcomes(t, m, describe(t, "f")))
		require.Subset(t, seen, []string{"512a", "512a 7680z"})
		require.NotContains(t, seen, "4096a 4096z")
	}
}

func TestUnsyncedDirectoryEntries(t *testing.T) {
	t.Run("creation", func(t *testing.T) {
		m := NewMem()
		f := create(t, m, "f")
		write(t, f, 0, "abc")
		require.NoError(t, f.Sync())
		require.Equal(t, []string{"1a 1b 1c", "missing"}, kinds(outcomes(t, m, describe(t, "f"))), "a sync of the file does not keep its name")
		require.NoError(t, m.SyncDir(""))
		require.Equal(t, []string{"1a 1b 1c"}, kinds(outcomes(t, m, describe(t, "f"))))
	})
	t.Run("name before content", func(t *testing.T) {
		m := NewMem()
		write(t, create(t, m, "f"), 0, "a")
		require.NoError(t, m.SyncDir(""))
		require.Equal(t, []string{"1a", "1z", "empty"}, kinds(outcomes(t, m, describe(t, "f"))))
	})
	t.Run("removal", func(t *testing.T) {
		m := NewMem()
		synced(t, m, "f", "a")
		require.NoError(t, m.Remove("f"))
		require.Equal(t, []string{"1a", "missing"}, kinds(outcomes(t, m, describe(t, "f"))))
		require.NoError(t, m.SyncDir(""))
		require.Equal(t, []string{"missing"}, kinds(outcomes(t, m, describe(t, "f"))))
	})
	t.Run("rename", func(t *testing.T) {
		m := NewMem()
		synced(t, m, "new", "n")
		synced(t, m, "name", "o")
		require.NoError(t, m.Rename("new", "name"))
		both := func(m *Mem) string { return describe(t, "name")(m) + ", " + describe(t, "new")(m) }
		require.Equal(t, []string{"1n, missing", "1o, 1n"}, kinds(outcomes(t, m, both)), "old or new, never neither")
		require.NoError(t, m.SyncDir(""))
		require.Equal(t, []string{"1n, missing"}, kinds(outcomes(t, m, both)))
	})
	t.Run("rename of an unsynced file", func(t *testing.T) {
		m := NewMem()
		synced(t, m, "name", "o")
		f := create(t, m, "new")
		write(t, f, 0, "n")
		require.NoError(t, f.Sync())
		require.NoError(t, m.Rename("new", "name"))
		require.Equal(t, []string{"1n", "1o"}, kinds(outcomes(t, m, describe(t, "name"))))
	})
	t.Run("rename of another file of the same name", func(t *testing.T) {
		m := NewMem()
		synced(t, m, "f", "a")
		require.NoError(t, m.Rename("f", "g"))
		create(t, m, "f")
		require.NoError(t, m.Rename("f", "h"))
		seen := outcomes(t, m, func(m *Mem) string { return describe(t, "f")(m) + ", " + describe(t, "g")(m) })
		for outcome := range seen {
			require.Contains(t, outcome, "1a", "the first file is somewhere")
		}
		require.Contains(t, kinds(seen), "1a, missing")
		require.Contains(t, kinds(seen), "missing, 1a")
	})
	t.Run("rename out of a removed directory", func(t *testing.T) {
		m := NewMem()
		require.NoError(t, MkdirAllDurable(m, "d"))
		synced(t, m, "d/f", "a")
		require.NoError(t, m.Rename("d/f", "f"))
		require.NoError(t, m.Remove("d"))
		both := func(m *Mem) string { return describe(t, "d/f")(m) + ", " + describe(t, "f")(m) }
		require.Equal(t, []string{"1a, missing", "missing, 1a"}, kinds(outcomes(t, m, both)))
	})
	t.Run("rename between directories", func(t *testing.T) {
		m := NewMem()
		require.NoError(t, m.MkdirAll("x"))
		require.NoError(t, m.MkdirAll("y"))
		require.NoError(t, m.SyncDir(""))
		f := create(t, m, "x/f")
		require.NoError(t, f.Sync())
		require.NoError(t, m.Rename("x/f", "y/f"))
		require.NoError(t, m.SyncDir("y"))
		both := func(m *Mem) string { return describe(t, "x/f")(m) + ", " + describe(t, "y/f")(m) }
		require.Equal(t, []string{"missing, empty"}, kinds(outcomes(t, m, both)), "moved, and not there twice")
	})
	t.Run("parent", func(t *testing.T) {
		m := NewMem()
		require.NoError(t, m.MkdirAll("d/e"))
		synced(t, m, "d/e/f", "a")
		require.Equal(t, []string{"1a", "missing"}, kinds(outcomes(t, m, describe(t, "d/e/f"))))
		require.NoError(t, MkdirAllDurable(m, "d/e"))
		require.Contains(t, kinds(outcomes(t, m, describe(t, "d/e/f"))), "missing", "d was there, its entry not durable")
		require.NoError(t, MkdirAllDurable(m, "d"))
		require.Equal(t, []string{"1a"}, kinds(outcomes(t, m, describe(t, "d/e/f"))))
	})
}

func TestMkdirAllDurable(t *testing.T) {
	m := NewMem()
	require.NoError(t, MkdirAllDurable(m, "a/b/c"))
	synced(t, m, "a/b/c/f", "x")
	require.Equal(t, []string{"1x"}, kinds(outcomes(t, m, describe(t, "a/b/c/f"))))
	require.NoError(t, MkdirAllDurable(OS(), path.Join(t.TempDir(), "a/b")))
	require.NoError(t, MkdirAllDurable(m, "/"))
	require.NoError(t, MkdirAllDurable(m, "."))
}

// TestEarlierChangesOfADirectoryCanBeLostAlone shows that a crash keeps changes in
// any combination, not only the first ones.
func TestEarlierChangesOfADirectoryCanBeLostAlone(t *testing.T) {
	m := NewMem()
	create(t, m, "first")
	create(t, m, "second")
	seen := outcomes(t, m, func(m *Mem) string {
		names, err := m.List("")
		require.NoError(t, err)
		return strings.Join(names, " ")
	})
	require.Equal(t, []string{"", "first", "first second", "second"}, kinds(seen))
}

func TestCrashRepeatsForASeed(t *testing.T) {
	m := randomMem(t, 7, 300)
	for seed := range uint64(20) {
		require.Equal(t, dump(t, m.Crash(seed)), dump(t, m.Crash(seed)))
	}
}

// TestKillKeepsAllThatWasWritten shows that a killed process loses nothing, that
// its image is its own, and that what it had not synced is still uncertain.
func TestKillKeepsAllThatWasWritten(t *testing.T) {
	m := NewMem()
	lock, err := m.Lock("LOCK")
	require.NoError(t, err)
	f := synced(t, m, "f", "a")
	mapped, err := f.Map(1 << 20)
	require.NoError(t, err)
	require.NoError(t, f.Allocate(pageBytes))
	require.NoError(t, mapped.Write(0, []byte("b")))
	create(t, m, "new")

	after := m.Kill()
	require.Equal(t, dump(t, m), dump(t, after))
	require.NoError(t, mapped.Write(0, []byte("z")))
	require.Equal(t, "1b 4095z", describe(t, "f")(after), "the dead process writes no more")
	again, err := after.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoError(t, lock.Close())

	require.Equal(t, []string{"1a", "1a 4095z", "1b", "1b 4095z"}, kinds(outcomes(t, after, describe(t, "f"))))
	require.Equal(t, []string{"empty", "missing"}, kinds(outcomes(t, after, describe(t, "new"))))
}

// TestFailedSyncLosesPages shows that what a failed sync gave up is not saved by
// a later one that succeeds, only by being written again.
func TestFailedSyncLosesPages(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', sectorBytes))
	write(t, f, 0, fill('b', sectorBytes))
	m.SetHook(func(op Op) error {
		if op.Kind == OpSync {
			return syscall.EIO
		}
		return nil
	})
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	m.SetHook(nil)
	require.NoError(t, f.Sync())
	require.Equal(t, "512b", describe(t, "f")(m), "readers still see it")
	require.Equal(t, []string{"512a", "512b"}, kinds(outcomes(t, m, describe(t, "f"))))
	write(t, f, 0, fill('b', sectorBytes))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"512b"}, kinds(outcomes(t, m, describe(t, "f"))))
}

// TestWriteBack shows that a page may be found as it was between two syncs.
func TestWriteBack(t *testing.T) {
	m := NewMem()
	f := synced(t, m, "f", fill('a', sectorBytes))
	seen := map[string]int{}
	for seed := range uint64(20) {
		write(t, f, 0, fill('b', sectorBytes))
		m.WriteBack(seed)
		write(t, f, 0, fill('c', sectorBytes))
		for outcome, n := range outcomes(t, m, describe(t, "f")) {
			seen[outcome] += n
		}
		write(t, f, 0, fill('a', sectorBytes))
		require.NoError(t, f.Sync())
	}
	require.Equal(t, []string{"512a", "512b", "512c"}, kinds(seen))
}

func TestLargeMappingOfASmallFileCostsLittle(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	require.NoError(t, f.Allocate(64<<20))
	mapped, err := f.Map(64 << 20)
	require.NoError(t, err)
	require.NoError(t, mapped.Write(0, []byte("x")))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir(""))
	for _, after := range []*Mem{m.Kill(), m.Crash(1)} {
		size, err := after.Size("f")
		require.NoError(t, err)
		require.EqualValues(t, 64<<20, size)
		_, _, node, err := after.lookupLocked("f")
		require.NoError(t, err)
		require.Len(t, node.image.data, pageBytes)
		require.Len(t, node.image.disk, 1)
	}
}

// randomMem does n random operations, and checks reads against files kept as
// plain byte slices.
func randomMem(t testing.TB, seed uint64, n int) *Mem {
	t.Helper()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	names := []string{"a", "b", "d/a", "d/b"}
	model := map[string][]byte{}
	open := func(name string) File {
		f, err := m.Open(name)
		require.NoError(t, err)
		return f
	}
	resize := func(name string, size int) {
		b := model[name]
		if size <= len(b) {
			model[name] = b[:size:size]
		} else {
			model[name] = append(b[:len(b):len(b)], make([]byte, size-len(b))...)
		}
	}
	for range n {
		name := names[random.IntN(len(names))]
		_, exists := model[name]
		if !exists {
			create(t, m, name)
			model[name] = []byte{}
			continue
		}
		f := open(name)
		size := random.IntN(20_000)
		switch random.IntN(10) {
		case 0:
			require.NoError(t, f.Truncate(int64(size)))
			resize(name, size)
		case 1:
			require.NoError(t, f.Allocate(int64(size)))
			resize(name, max(size, len(model[name])))
		case 2:
			require.NoError(t, f.Sync())
		case 3:
			require.NoError(t, m.SyncDir(path.Dir(name)))
		case 4:
			require.NoError(t, m.Remove(name))
			delete(model, name)
		case 5:
			to := names[random.IntN(len(names))]
			require.NoError(t, m.Rename(name, to))
			content := model[name]
			delete(model, name)
			model[to] = content
		case 6:
			if len(model[name]) == 0 {
				continue
			}
			mapped, err := f.Map(int64(len(model[name]) + size))
			require.NoError(t, err)
			off := random.IntN(len(model[name]))
			p := bytes.Repeat([]byte{byte(random.Uint32())}, min(size, len(model[name])-off))
			require.NoError(t, mapped.Write(int64(off), p))
			resize(name, len(model[name]))
			model[name] = append([]byte(nil), model[name]...)
			copy(model[name][off:], p)
			require.Equal(t, model[name], mapped.Bytes()[:len(model[name])])
			if random.IntN(2) == 0 {
				require.NoError(t, mapped.Unmap())
			}
		default:
			off := random.IntN(20_000)
			p := bytes.Repeat([]byte{byte(random.Uint32())}, size)
			_, err := f.WriteAt(p, int64(off))
			require.NoError(t, err)
			if size > 0 {
				resize(name, max(len(model[name]), off+size))
				model[name] = append([]byte(nil), model[name]...)
				copy(model[name][off:], p)
			}
		}
		if random.IntN(20) == 0 {
			m.WriteBack(random.Uint64())
		}
		require.NoError(t, f.Close())
		if want, ok := model[name]; ok {
			require.Equal(t, string(want), content(t, m, name))
		}
	}
	for name, want := range model {
		require.Equal(t, string(want), content(t, m, name))
	}
	return m
}

// TestRandomOperations shows that readers see what was written, that Kill keeps
// exactly that, and that after syncs of everything a crash does too.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(20) {
		m := randomMem(t, seed, 200)
		want := dump(t, m)
		killed := m.Kill()
		require.Equal(t, want, dump(t, killed))
		for _, m := range []*Mem{m, killed} {
			for _, name := range []string{"a", "b", "d/a", "d/b"} {
				if f, err := m.Open(name); err == nil {
					require.NoError(t, f.Sync())
				}
			}
			require.NoError(t, m.SyncDir(""))
			require.NoError(t, m.SyncDir("d"))
			for seed := range uint64(5) {
				after := m.Crash(seed)
				require.Equal(t, want, dump(t, after))
				require.Equal(t, want, dump(t, after.Crash(seed)))
			}
		}
	}
}
