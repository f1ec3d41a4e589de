package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/topic/codec"
)

// fakeCall is a call in which nothing is taken back.
type fakeCall struct {
	stores map[string]Opened
	now    int64
	key    []byte
	err    error
}

func (c *fakeCall) Scope() Call               { return c }
func (c *fakeCall) Opened(name string) Opened { return c.stores[name] }
func (c *fakeCall) Fail(err error)            { c.err = err }
func (c *fakeCall) Err() error                { return c.err }
func (c *fakeCall) Key() []byte               { return c.key }
func (c *fakeCall) Instant(bool) int64        { return c.now }
func (c *fakeCall) Undo(func())               { panic("nobody asked for it") }
func (c *fakeCall) Undoes() bool              { return false }

// An entry whose time to live is over is removed, from the store too, and its timer with it; one
// that was put again is not.
func TestTimeToLiveRemovesEntries(t *testing.T) {
	db, err := Memory().Open("")
	require.NoError(t, err)
	f := newFakeFollower(t, db, nil)
	timersDB, err := Memory().Open("timers")
	require.NoError(t, err)
	timersOf := newFakeFollower(t, timersDB, nil)
	kv := NewKV[string, int]("kv").TTL(10 * time.Millisecond)
	timers := NewTimers(timersOf.store)
	open, err := kv.Open(f.store, timers, &codec.Registry{})
	require.NoError(t, err)
	in := &fakeCall{stores: map[string]Opened{"kv": open}}
	kv.Put(in, "a", 1)
	kv.Put(in, "b", 1)
	in.now = 7
	kv.Put(in, "b", 2)
	require.Len(t, f.barrier(1, open), 2)
	timersOf.barrier(1, timers)
	at, ok, err := open.NextExpiry()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 10, at)
	require.NoError(t, open.Expire(9))
	require.Empty(t, f.barrier(2, open))
	in.now = 10
	_, ok = kv.Get(in, "a")
	require.False(t, ok)
	require.NoError(t, open.Expire(10))
	require.Equal(t, map[string][]byte{"\x01a": nil}, f.barrier(3, open))
	n, ok := kv.Get(in, "b")
	require.Equal(t, 2, n)
	require.True(t, ok)
	require.NoError(t, open.Expire(17))
	require.Equal(t, map[string][]byte{"\x01b": nil}, f.barrier(4, open))
	_, ok, err = open.NextExpiry()
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, in.err)
}

// A value is found at the byte positions that its codec's comment gives.
func TestFormatOfKV(t *testing.T) {
	c := timedCodec[string]{codec.String}
	b, err := c.Append(nil, timed[string]{stamp{-3}, "v"})
	require.NoError(t, err)
	require.Equal(t, "\x05v", string(b))
	v, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, timed[string]{stamp{-3}, "v"}, v)
	_, err = c.Decode(nil)
	require.Error(t, err)
}
