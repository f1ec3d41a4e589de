package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// everyKind does one operation of each kind, in order, up to the first error.
func everyKind(m *Mem) error {
	if err := m.MkdirAll("d"); err != nil {
		return err
	}
	f, err := m.Create("d/f")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Allocate(pageBytes); err != nil {
		return err
	}
	mapped, err := f.Map(pageBytes)
	if err != nil {
		return err
	}
	defer mapped.Unmap()
	if _, err := f.WriteAt([]byte("write"), 0); err != nil {
		return err
	}
	if err := mapped.Write(5, []byte("mapped")); err != nil {
		return err
	}
	if err := f.Truncate(11); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := m.Rename("d/f", "d/g"); err != nil {
		return err
	}
	if err := m.SyncDir("d"); err != nil {
		return err
	}
	return m.Remove("d/g")
}

const everyKindOps = 10

func TestHookSeesEveryOperation(t *testing.T) {
	m := NewMem()
	var seen []string
	m.SetHook(func(op Op) error {
		seen = append(seen, op.String())
		return nil
	})
	require.NoError(t, everyKind(m))
	require.Equal(t, []string{
		"1: mkdir d", "2: create d/f", "3: allocate d/f to 4096", "4: write d/f [0, 5)", "5: mapped write d/f [5, 11)",
		"6: truncate d/f to 11", "7: sync d/f", "8: rename d/f to d/g", "9: sync directory d", "10: remove d/g",
	}, seen)
	require.EqualValues(t, everyKindOps, m.Ops())
}

// TestStopAtEveryOperation shows that a stopped file system does nothing more,
// and that what was done before is there for the next process.
func TestStopAtEveryOperation(t *testing.T) {
	states := map[string]bool{}
	for n := int64(1); n <= everyKindOps; n++ {
		m := NewMem()
		m.StopAt(n)
		require.ErrorIs(t, everyKind(m), ErrStopped, "operation %d", n)
		_, err := m.List("")
		require.ErrorIs(t, err, ErrStopped)
		_, err = m.Open("d/f")
		require.ErrorIs(t, err, ErrStopped)
		_, err = m.Size("d/f")
		require.ErrorIs(t, err, ErrStopped)
		_, err = m.Lock("LOCK")
		require.ErrorIs(t, err, ErrStopped)
		require.ErrorIs(t, m.MkdirAll("d"), ErrStopped)
		require.ErrorIs(t, m.RemoveAll("d"), ErrStopped)
		after := m.Kill()
		require.EqualValues(t, 0, after.Ops())
		states[dump(t, after)] = true
		m.Crash(1)
	}
	// Sync and SyncDir change nothing that a killed process shows.
	require.Len(t, states, everyKindOps-2)

	m := NewMem()
	m.StopAt(everyKindOps + 1)
	require.NoError(t, everyKind(m))
}

func TestStoppedFileAndMapping(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	write(t, f, 0, "abc")
	mapped, err := f.Map(pageBytes)
	require.NoError(t, err)
	m.Stop()
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrStopped)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, ErrStopped)
	_, err = f.Size()
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorIs(t, f.Allocate(9000), ErrStopped)
	require.ErrorIs(t, f.Truncate(0), ErrStopped)
	require.ErrorIs(t, f.Sync(), ErrStopped)
	require.ErrorIs(t, mapped.Write(0, []byte("x")), ErrStopped)
	_, err = f.Map(1)
	require.ErrorIs(t, err, ErrStopped)
	require.NoError(t, mapped.Unmap(), "giving back memory still works")
	require.Equal(t, "abc", content(t, m.Kill(), "f"))
}

// TestStopPartway shows a process killed in the middle of a copy.
func TestStopPartway(t *testing.T) {
	for _, kind := range []OpKind{OpWrite, OpMappedWrite, OpSync} {
		m := NewMem()
		m.SetHook(func(op Op) error {
			if op.Kind == kind {
				return StopPartway(2)
			}
			return nil
		})
		require.ErrorIs(t, everyKind(m), ErrStopped)
		require.ErrorIs(t, m.MkdirAll("e"), ErrStopped)
		want := map[OpKind]string{OpWrite: "wr\x00\x00\x00", OpMappedWrite: "writema\x00", OpSync: "writemapped"}[kind]
		require.Equal(t, want, content(t, m.Kill(), "d/f")[:len(want)])
	}
}

// TestHookFailsAnOperation shows that an injected error leaves things as they were
// and life goes on.
func TestHookFailsAnOperation(t *testing.T) {
	for n := int64(1); n <= everyKindOps; n++ {
		m := NewMem()
		injected := errors.New("injected")
		m.SetHook(func(op Op) error {
			if op.N == n {
				return fmt.Errorf("operation %d: %w", n, injected)
			}
			return nil
		})
		err := everyKind(m)
		require.ErrorIs(t, err, injected)
		require.NotErrorIs(t, err, ErrStopped)
		m.SetHook(nil)
		require.NoError(t, m.RemoveAll("d"))
		require.NoError(t, everyKind(m))
	}
}

func TestHookMayTakeImages(t *testing.T) {
	m := NewMem()
	var images []*Mem
	m.SetHook(func(op Op) error {
		images = append(images, m.Kill(), m.Crash(uint64(op.N)))
		return nil
	})
	require.NoError(t, everyKind(m))
	require.Len(t, images, 2*everyKindOps)
}

func TestFullDisk(t *testing.T) {
	m := NewMem()
	m.SetCapacity(4 * pageBytes)
	f := create(t, m, "f")
	require.ErrorIs(t, f.Allocate(5*pageBytes), syscall.ENOSPC)
	size, err := f.Size()
	require.NoError(t, err)
	require.Zero(t, size)
	require.NoError(t, f.Allocate(3*pageBytes))

	g := create(t, m, "g")
	n, err := g.WriteAt(make([]byte, 2*pageBytes), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, pageBytes, n, "what fits is written")
	_, err = f.WriteAt(make([]byte, 3*pageBytes), 0)
	require.NoError(t, err, "allocated space is there")

	require.NoError(t, g.Truncate(3*pageBytes), "a hole takes no space")
	mapped, err := g.Map(3 * pageBytes)
	require.NoError(t, err)
	require.NoError(t, mapped.Write(0, []byte("x")))
	err = mapped.Write(2*pageBytes, []byte("x"))
	require.ErrorIs(t, err, ErrFault)
	require.ErrorIs(t, err, syscall.ENOSPC)

	require.ErrorIs(t, create(t, m, "h").Allocate(1), syscall.ENOSPC)
	require.NoError(t, f.Truncate(pageBytes))
	require.NoError(t, m.Kill().Rename("g", "h"))
	require.NoError(t, mapped.Write(2*pageBytes, []byte("x")), "a truncation frees space")
	require.NoError(t, m.Remove("f"))
	h := create(t, m, "h")
	require.NoError(t, h.Allocate(2*pageBytes), "and so does a removal")
	require.ErrorIs(t, h.Allocate(3*pageBytes), syscall.ENOSPC)
	after := m.Kill()
	require.ErrorIs(t, create(t, after, "i").Allocate(1), syscall.ENOSPC)
	require.NoError(t, after.Rename("g", "h"))
	require.NoError(t, create(t, after, "i").Allocate(2*pageBytes), "and a rename over a file")
}

func TestUnsupportedUseOfTheRoot(t *testing.T) {
	m := NewMem()
	require.Error(t, m.Remove("/"))
	require.Error(t, m.Rename("/", "x"))
	_, err := m.Create("/")
	require.Error(t, err)
	_, err = m.Lock("/")
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}
