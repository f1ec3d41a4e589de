package statetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
)

// Options describes a backend to Run.
type Options struct {
	// Backend is the backend under test.
	Backend func(t *testing.T) state.Backend

	// Dir returns a directory that does not exist and whose parent does, for
	// Open and Checkpoint. Nil means one below t.TempDir.
	Dir func(t *testing.T) string

	// Volatile tells that what a database holds goes when it is closed.
	Volatile bool

	// Seed is that of the random operations. Zero takes one from the clock.
	Seed uint64
}

// Run tests that a backend's databases keep the promises of state.DB.
func Run(t *testing.T, o Options) {
	if o.Dir == nil {
		o.Dir = func(t *testing.T) string { return filepath.Join(t.TempDir(), "db") }
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	t.Run("Empty", o.empty)
	t.Run("EmptyValue", o.emptyValue)
	t.Run("ResultsAreOwned", o.owned)
	t.Run("Order", o.order)
	t.Run("Model", o.model)
	t.Run("Clear", o.clear)
	t.Run("Ranges", o.ranges)
	t.Run("RangeSeesOneState", o.oneState)
	t.Run("Snapshot", o.snapshot)
	t.Run("Checkpoint", o.checkpoint)
	t.Run("Close", o.close)
	t.Run("DirectoryInUse", o.inUse)
}

func (o Options) open(t *testing.T) state.DB {
	db, err := o.Backend(t).Open(o.Dir(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// put is an entry that sets key, and del one that deletes it.
func put(key, value string) state.Entry {
	return state.Entry{Key: []byte(key), Value: []byte(value)}
}

func del(key string) state.Entry { return state.Entry{Key: []byte(key)} }

func apply(t *testing.T, db state.DB, entries ...state.Entry) {
	t.Helper()
	require.NoError(t, db.Apply(state.Batch{Entries: entries}))
}

// dump returns what db holds in [lo, hi), checking the order.
func dump(t *testing.T, db state.DB, lo, hi []byte) map[string]string {
	t.Helper()
	all := make(map[string]string)
	var last []byte
	for e, err := range db.Range(lo, hi) {
		require.NoError(t, err)
		if len(all) > 0 {
			require.Negative(t, bytes.Compare(last, e.Key), "keys ascend")
		}
		last = append(last[:0], e.Key...)
		all[string(e.Key)] = string(e.Value)
	}
	return all
}

func (o Options) empty(t *testing.T) {
	db := o.open(t)
	_, ok, err := db.Get([]byte("a"))
	require.NoError(t, err)
	require.False(t, ok)
	require.Empty(t, dump(t, db, nil, nil))
	apply(t, db)
	apply(t, db, del("a"))
	require.Empty(t, dump(t, db, nil, nil))
	require.NoError(t, db.Apply(state.Batch{Clear: true}))
}

// emptyValue shows that an empty value is a value, and that an empty key is
// refused.
func (o Options) emptyValue(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("\x00", "first"), put("a", ""), put("\xff\xff", "last"))
	value, ok, err := db.Get([]byte("a"))
	require.NoError(t, err)
	require.True(t, ok)
	require.NotNil(t, value)
	require.Empty(t, value)
	for e, err := range db.Range([]byte("a"), []byte("b")) {
		require.NoError(t, err)
		require.NotNil(t, e.Value)
	}
	require.Error(t, db.Apply(state.Batch{Entries: []state.Entry{put("", "none")}}))
	require.Equal(t, map[string]string{"\x00": "first", "a": "", "\xff\xff": "last"}, dump(t, db, nil, nil))
}

// owned shows that neither side keeps the other's slices.
func (o Options) owned(t *testing.T) {
	db := o.open(t)
	key, value := []byte("key"), []byte("value")
	require.NoError(t, db.Apply(state.Batch{Entries: []state.Entry{{Key: key, Value: value}}}))
	copy(key, "xxx")
	copy(value, "xxxxx")
	got, ok, err := db.Get([]byte("key"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "value", string(got))
	copy(got, "yyyyy")
	require.Equal(t, map[string]string{"key": "value"}, dump(t, db, nil, nil))
}

// order shows that a batch out of order is refused and changes nothing.
func (o Options) order(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("a", "1"))
	require.Error(t, db.Apply(state.Batch{Entries: []state.Entry{put("c", "1"), put("b", "1")}}))
	require.Error(t, db.Apply(state.Batch{Clear: true, Entries: []state.Entry{put("b", "1"), put("b", "2")}}))
	require.Equal(t, map[string]string{"a": "1"}, dump(t, db, nil, nil))
}

// model compares random batches, lookups and ranges with a map.
func (o Options) model(t *testing.T) {
	t.Logf("seed %d", o.Seed)
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	backend, dir := o.Backend(t), o.Dir(t)
	db, err := backend.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	model := make(map[string]string)
	key := func() string { return fmt.Sprintf("%0*d", 1+rng.IntN(5), rng.IntN(3000)) }
	for step := range 120 {
		changes := make(map[string]state.Entry)
		for range rng.IntN(400) {
			k := key()
			if rng.IntN(3) == 0 {
				changes[k] = del(k)
			} else {
				changes[k] = put(k, fmt.Sprint(step, k))
			}
		}
		b := state.Batch{Clear: rng.IntN(40) == 0}
		if b.Clear {
			clear(model)
		}
		if lo, hi := key(), key(); lo < hi && rng.IntN(4) == 0 {
			b.Ranges = []state.Range{{Lo: []byte(lo), Hi: []byte(hi)}}
			maps.DeleteFunc(model, func(k, _ string) bool { return k >= lo && k < hi })
		}
		for _, k := range slices.Sorted(maps.Keys(changes)) {
			e := changes[k]
			b.Entries = append(b.Entries, e)
			delete(model, k)
			if e.Value != nil {
				model[k] = string(e.Value)
			}
		}
		require.NoError(t, db.Apply(b))
		for range 20 {
			k := key()
			value, ok, err := db.Get([]byte(k))
			require.NoError(t, err)
			want, has := model[k]
			require.Equal(t, has, ok)
			require.Equal(t, want, string(value))
		}
		lo, hi := key(), key()
		want := maps.Clone(model)
		maps.DeleteFunc(want, func(k, _ string) bool { return k < lo || k >= hi })
		require.Equal(t, want, dump(t, db, []byte(lo), []byte(hi)), "range [%q, %q)", lo, hi)
		if step%30 == 29 {
			require.Equal(t, model, dump(t, db, nil, nil))
			require.NoError(t, db.Close())
			db, err = backend.Open(dir)
			require.NoError(t, err)
			if o.Volatile {
				clear(model)
			}
			require.Equal(t, model, dump(t, db, nil, nil), "after Close and Open")
		}
	}
}

// clear shows that a batch with Clear leaves its own entries and no others.
func (o Options) clear(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("\x00", "0"), put("a", "1"), put("b", "1"), put("\xff\xff\xff", "1"))
	require.NoError(t, db.Apply(state.Batch{Clear: true, Entries: []state.Entry{del("a"), put("b", "2"), put("c", "2")}}))
	require.Equal(t, map[string]string{"b": "2", "c": "2"}, dump(t, db, nil, nil))
	apply(t, db, put("a", "3"))
	require.Equal(t, map[string]string{"a": "3", "b": "2", "c": "2"}, dump(t, db, nil, nil))
}

// ranges shows that the ranges of a batch are gone before its entries come, that ranges out of
// order are refused, and that whoever reads meanwhile has what was there.
func (o Options) ranges(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("a", "1"), put("b", "1"), put("b1", "1"), put("c", "1"), put("d", "1"), put("e", "1"))
	before, err := db.Snapshot()
	require.NoError(t, err)
	of := func(bounds ...string) (all []state.Range) {
		for i := 0; i < len(bounds); i += 2 {
			all = append(all, state.Range{Lo: []byte(bounds[i]), Hi: []byte(bounds[i+1])})
		}
		return all
	}
	require.NoError(t, db.Apply(state.Batch{Ranges: of("b", "c", "d", "f"), Entries: []state.Entry{put("b1", "2"), put("e", "2")}}))
	want := map[string]string{"a": "1", "b1": "2", "c": "1", "e": "2"}
	require.Equal(t, want, dump(t, db, nil, nil))
	require.Error(t, db.Apply(state.Batch{Ranges: of("", "b")}))
	require.Error(t, db.Apply(state.Batch{Ranges: of("b", "b")}))
	require.Error(t, db.Apply(state.Batch{Ranges: of("c", "d", "a", "b")}))
	require.Equal(t, want, dump(t, db, nil, nil))
	value, ok, err := before.Get([]byte("d"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "1", string(value))
	require.NoError(t, before.Close())
	require.NoError(t, db.Apply(state.Batch{Ranges: of("a", "z")}))
	require.Empty(t, dump(t, db, nil, nil))
}

// oneState shows that a walk is not disturbed by what is applied meanwhile.
func (o Options) oneState(t *testing.T) {
	db := o.open(t)
	want := make(map[string]string)
	var entries []state.Entry
	for i := range 1000 {
		k := fmt.Sprintf("%04d", i)
		want[k] = "old"
		entries = append(entries, put(k, "old"))
	}
	apply(t, db, entries...)
	got := make(map[string]string)
	for e, err := range db.Range(nil, nil) {
		require.NoError(t, err)
		if len(got) == 10 {
			for i := range entries {
				entries[i].Value = []byte("new")
				if i%2 == 0 {
					entries[i].Value = nil
				}
			}
			apply(t, db, append([]state.Entry{put("0000-new", "new")}, entries[1:]...)...)
		}
		got[string(e.Key)] = string(e.Value)
	}
	require.Equal(t, want, got)
	for range db.Range(nil, nil) {
		break // a walk may be left
	}
}

// snapshot shows that a snapshot stays as it is, whatever is applied after.
func (o Options) snapshot(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("a", "1"), put("b", "2"), put("c", "3"))
	before, err := db.Snapshot()
	require.NoError(t, err)
	apply(t, db, put("a", "new"), del("b"), put("d", "4"))
	require.NoError(t, db.Apply(state.Batch{Clear: true}))
	value, ok, err := before.Get([]byte("b"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "2", string(value))
	_, ok, err = before.Get([]byte("d"))
	require.NoError(t, err)
	require.False(t, ok)
	var keys []string
	for e, err := range before.Range([]byte("a"), []byte("c")) {
		require.NoError(t, err)
		keys = append(keys, string(e.Key)+string(e.Value))
	}
	require.Equal(t, []string{"a1", "b2"}, keys)
	require.NoError(t, before.Close())
	require.Empty(t, dump(t, db, nil, nil))
	require.NoError(t, db.Close())
	_, err = db.Snapshot()
	require.ErrorIs(t, err, state.ErrClosed)
}

func (o Options) checkpoint(t *testing.T) {
	backend := o.Backend(t)
	db, err := backend.Open(o.Dir(t))
	require.NoError(t, err)
	defer db.Close()
	apply(t, db, put("a", "1"), put("b", "1"))
	dir := o.Dir(t)
	require.NoError(t, db.Checkpoint(dir))
	require.Error(t, db.Checkpoint(dir), "the directory exists")
	apply(t, db, put("a", "2"), del("b"))
	copied, err := backend.Open(dir)
	require.NoError(t, err)
	defer copied.Close()
	require.Equal(t, map[string]string{"a": "1", "b": "1"}, dump(t, copied, nil, nil))
	require.NoError(t, copied.Apply(state.Batch{Entries: []state.Entry{put("c", "3")}}))
	require.Equal(t, map[string]string{"a": "2"}, dump(t, db, nil, nil))
}

func (o Options) close(t *testing.T) {
	db := o.open(t)
	apply(t, db, put("a", "1"))
	require.NoError(t, db.Close())
	require.NoError(t, db.Close(), "Close may be repeated")
	_, _, err := db.Get([]byte("a"))
	require.ErrorIs(t, err, state.ErrClosed)
	require.ErrorIs(t, db.Apply(state.Batch{}), state.ErrClosed)
	require.ErrorIs(t, db.Checkpoint(o.Dir(t)), state.ErrClosed)
	var errs []error
	for _, err := range db.Range(nil, nil) {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.True(t, errors.Is(errs[0], state.ErrClosed))
}

func (o Options) inUse(t *testing.T) {
	backend, dir := o.Backend(t), o.Dir(t)
	db, err := backend.Open(dir)
	require.NoError(t, err)
	_, err = backend.Open(dir)
	require.Error(t, err)
	require.NoError(t, db.Close())
	db, err = backend.Open(dir)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
