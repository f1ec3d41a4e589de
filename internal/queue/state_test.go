package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBackoffDoubles(t *testing.T) {
	r := Rules{BackoffMin: 10, BackoffMax: 75}
	for count, want := range map[int64]int64{1: 10, 2: 20, 3: 40, 4: 75, 1000: 75} {
		require.Equal(t, want, r.Backoff(count), "delivery %d", count)
	}
}

func TestRanges(t *testing.T) {
	var r ranges
	require.Equal(t, int64(2), r.add(3, 5))
	require.Equal(t, int64(1), r.add(7, 8))
	require.Equal(t, int64(2), r.add(5, 7), "it joins both")
	require.Equal(t, ranges{{3, 8}}, r)
	require.Zero(t, r.add(4, 8))
	require.Equal(t, int64(3), r.add(1, 10)-1, "over all of it")
	require.Equal(t, ranges{{1, 10}}, r)
	r.add(20, 30)
	r.cut(25)
	require.Equal(t, ranges{{1, 10}, {20, 25}}, r)
	require.True(t, r.contains(24))
	require.False(t, r.contains(10))
	r.cut(10)
	require.Equal(t, ranges{{1, 10}}, r)
}

// A partition that lost records takes them out of the queue, so that those which get
// their offsets are delivered.
func TestCut(t *testing.T) {
	s := New(0, 1)
	for _, c := range []Change{
		{Kind: Done, From: 0, To: 5, Cause: Acked},
		{Kind: Delivered, From: 5, To: 6, Count: 2},
		{Kind: Done, From: 6, To: 9, Cause: Acked},
		{Kind: Delivered, From: 9, To: 10, Count: 1},
	} {
		s.Apply(c)
	}
	require.Equal(t, int64(10), s.Reached())
	s.Apply(Change{Kind: Cut, From: 7})
	require.Equal(t, int64(7), s.Reached())
	require.True(t, s.Known(5) && s.Known(6))
	require.False(t, s.Known(7) || s.Known(9))
	s.Apply(Change{Kind: Cut, From: 2})
	require.Equal(t, int64(2), s.Start())
	require.Equal(t, int64(2), s.Reached())
}

// An acknowledgement after the lock has run out counts until the record is handed out
// again.
func TestLateAck(t *testing.T) {
	s := New(0, 1)
	s.Resume(0, Rules{Lock: 10, BackoffMin: 5, BackoffMax: 5, InFlight: 2})
	s.Take(0, 0)
	s.Apply(s.Deliver(0))
	s.Handed(0, 0)
	s.Expire(10)
	_, _, ok := s.Due(14)
	require.False(t, ok, "it backs off")
	require.ErrorIs(t, s.Extend(14, 0, 1), ErrStale)
	late, err := s.Ack(0, 1)
	require.NoError(t, err)
	require.Equal(t, Change{Kind: Done, From: 0, To: 1, Cause: Acked}, late)
	s.Abandon(late, 15) // it could not be written
	off, dead, ok := s.Due(15)
	require.True(t, ok && off == 0 && !dead)
	s.Apply(s.Deliver(0))
	_, err = s.Ack(0, 1)
	require.ErrorIs(t, err, ErrStale)
	at, ok := s.Wake(15)
	require.False(t, ok, "not handed out yet: %d", at)
	s.Handed(15, 0)
	at, ok = s.Wake(15)
	require.True(t, ok)
	require.Equal(t, int64(25), at)
}
