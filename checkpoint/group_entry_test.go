package checkpoint

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/group"
)

// groupEntries are commands of every kind, all of them accepted but one.
func groupEntries() []entry {
	at := func(n int32) group.Partition { return group.Partition{Topic: "a", Number: n} }
	return []entry{
		groupEntry{1000, group.Join{Group: "g", Member: 7, Static: "one", Subscription: group.Subscription{Topics: []string{"a", "b"}, Pattern: "c.*"}, Session: 30_000}},
		groupEntry{1001, group.Join{Group: "g", Member: 1 << 63, Session: 45_000}},
		groupEntry{1002, group.SetTarget{Group: "g", Epoch: 2, Target: map[group.Partition]group.MemberID{at(0): 7, at(1): 1 << 63}}},
		groupEntry{1003, group.Commit{Group: "g", Member: 7, Positions: []group.Committed{
			{Grant: group.Grant{Partition: at(0), Epoch: 3}, Position: group.Position{Offset: 50, LeaderEpoch: 2, Metadata: "m"}},
		}}},
		groupEntry{1004, group.Release{Group: "g", Member: 1 << 63, Grants: []group.Grant{{Partition: at(1), Epoch: 3}}}},
		groupEntry{1005, group.Away{Group: "g", Member: 7}},
		groupEntry{1006, group.Commit{Group: "reset", Positions: []group.Committed{{Grant: group.Grant{Partition: at(0)}}}}},
		groupEntry{1007, group.Leave{Group: "g", Member: 1 << 63}},
		groupEntry{1008, group.Commit{Group: "old"}},
		groupEntry{1009, group.Expire{Group: "old", Idle: 1008}},
		groupEntry{1010, group.Delete{Group: "none"}},
		groupEntry{1011, group.ForgetTopic{Topic: "d"}},
		groupEntry{1012, group.Restart{}},
	}
}

func TestGroupEntriesDecodeToWhatWasEncoded(t *testing.T) {
	for _, e := range groupEntries() {
		b := encodeEntry(nil, e)
		got, err := decodeEntry(b)
		require.NoError(t, err, "%+v", e)
		require.Equal(t, e, got)
		for n := range b {
			_, err := decodeEntry(b[:n])
			require.Error(t, err, "%+v cut to %d bytes", e, n)
		}
		_, err = decodeEntry(append(b, 0))
		require.ErrorIs(t, err, ErrInvalid)
	}
	_, err := decodeEntry([]byte{entryVersion, byte(kindGroup), 0, 99})
	require.ErrorIs(t, err, ErrInvalid)
}

// The bytes of a group's entries, and of its section of a snapshot, are part of the
// format.
func TestFormatOfGroupsStaysAsItIs(t *testing.T) {
	var got bytes.Buffer
	l := newMetaLog()
	for _, e := range groupEntries() {
		fmt.Fprintf(&got, "%x\n", encodeEntry(nil, e))
		l.apply(e)
	}
	require.Len(t, l.m.groups.Groups, 2)
	fmt.Fprintf(&got, "%x\n", appendGroups(nil, l.m.groups))
	golden(t, "testdata/format/groups.v1.hex", got.Bytes())
}

// A snapshot without groups is of the form it had before there were any; one with a
// section this library does not know is of a later version.
func TestSnapshotSections(t *testing.T) {
	l := newMetaLog()
	l.apply(producerBegin{})
	none := encodeSnapshot(nil, l.m)
	l.apply(groupEntries()[0])
	with := encodeSnapshot(nil, l.m)
	require.Equal(t, none[:len(none)-4], with[:len(none)-4])
	m, err := decodeSnapshot(with, 1)
	require.NoError(t, err)
	require.Equal(t, l.m.groups, m.groups)

	body := none[:len(none)-4]
	_, err = decodeSnapshot(sealed(appendSection(body[:len(body):len(body)], 99, []byte("later"))), 1)
	require.ErrorIs(t, err, ErrVersion)
	_, err = decodeSnapshot(sealed(appendSection(body[:len(body):len(body)], sectionGroups, []byte{0})), 1)
	require.ErrorIs(t, err, ErrInvalid, "an empty section has a second form: none")
}

// A copy of the metadata shares no group with the original.
func TestCloneCopiesGroups(t *testing.T) {
	l := newMetaLog()
	l.apply(groupEntries()[0])
	c := l.m.clone()
	l.apply(groupEntries()[1])
	require.Len(t, c.groups.Groups["g"].Members, 1)
}
