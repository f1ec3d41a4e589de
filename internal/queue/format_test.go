package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each field stands where the table of the format says.
func TestFormat(t *testing.T) {
	require.Equal(t, []byte{1, 1, 200, 1, 3, 2, 5, 4, 1, 3, 200, 1, 3, 6, 5, 1, 6, 7},
		AppendChanges(nil, []Change{
			{Kind: Delivered, From: 200, To: 201, Count: 3},
			{Kind: Done, From: 5, To: 9, Cause: Acked},
			{Kind: Released, From: 200, To: 201, Count: 3, At: 3},
			{Kind: Epoch, At: -1},
			{Kind: Cut, From: 7},
		}))

	s := New(10, 4)
	for _, c := range []Change{
		{Kind: Delivered, From: 10, To: 11, Count: 1},
		{Kind: Delivered, From: 13, To: 14, Count: 2},
		{Kind: Released, From: 13, To: 14, Count: 2, At: 9},
		{Kind: Done, From: 11, To: 13, Cause: Acked},
		{Kind: Done, From: 20, To: 21, Cause: Removed},
	} {
		s.Apply(c)
	}
	require.Equal(t, []byte{1, 4, 1, 't', 10, 8, // version, kind, topic, start, epoch
		7, 2, 2, 0, 0, 0, 1, 0, // totals
		2, 1, 2, 7, 1, // done: 11 and 12, 20
		2, 0, 1, 0, 3, 2, 18, // delivered: 10 once, locked; 13 twice, due at 9
	}, AppendSnapshot(nil, "t", s))
}

// What is not a record of this format is an error, and a later version another one.
func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":              {},
		"no change":            {1},
		"an unknown kind":      {1, 9},
		"a snapshot behind":    {1, 6, 7, 4},
		"a change cut off":     {1, 1, 200},
		"a long form":          {1, 6, 0x87, 0},
		"count zero":           {1, 1, 5, 0},
		"an empty span":        {1, 2, 5, 0, 1},
		"an unknown cause":     {1, 2, 5, 1, 7},
		"an offset over":       {1, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"more bytes behind it": append(AppendSnapshot(nil, "t", New(1, 0)), 0),
		"a topic too long":     {1, 4, 200, 1, 'x'},
	} {
		_, err := Decode(b)
		require.ErrorIs(t, err, ErrFormat, name)
	}
	_, err := Decode([]byte{2, 6, 7})
	require.ErrorIs(t, err, ErrVersion)
	_, err = Entry{Changes: []Change{{Kind: Cut}}}.Fold(nil)
	require.ErrorIs(t, err, ErrFormat)
}

// What decodes encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add(AppendChanges(nil, []Change{{Kind: Delivered, From: 3, To: 4, Count: 1}, {Kind: Done, From: 3, To: 9, Cause: Expired}, {Kind: Epoch, At: 2}}))
	f.Add(AppendChanges(nil, []Change{{Kind: Released, From: 3, To: 4, Count: 1, At: -5}, {Kind: Cut, From: 1 << 40}}))
	s := New(10, 4)
	s.Apply(Change{Kind: Delivered, From: 12, To: 13, Count: 7})
	s.Apply(Change{Kind: Done, From: 14, To: 19, Cause: Acked})
	f.Add(AppendSnapshot(nil, "topic", s))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		again := AppendChanges(nil, e.Changes)
		if e.Snapshot != nil {
			again = AppendSnapshot(nil, e.Topic, e.Snapshot)
		}
		require.Equal(t, b, again)
		folded, err := e.Fold(New(0, -1))
		require.NoError(t, err)
		folded.Resume(0, Rules{InFlight: 1})
	})
}
