package checkpoint

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
)

// metaLog is a metadata log in memory, which applies what it is given.
type metaLog struct {
	m *metadata
	n int64
}

func newMetaLog() *metaLog { return &metaLog{m: newMetadata(rules{})} }

func (l *metaLog) apply(e entry) result {
	r := l.m.apply(l.n, e)
	l.n++
	return r
}

func ends(tps ...log.TopicPartition) map[log.TopicPartition]log.Position {
	m := map[log.TopicPartition]log.Position{}
	for i, tp := range tps {
		m[tp] = log.Position{Offset: log.Offset(10 + i), Epoch: 2}
	}
	return m
}

func reportAt(next int) map[TaskID]Report {
	return map[TaskID]Report{{"t", 0}: {Inputs: []Input{{part("in", 0), log.Position{Offset: log.Offset(next)}}}}}
}

// Entries of an attempt are accepted while it is the present one and lives; the same
// entry again is the same success.
func TestApplyComparesAttempts(t *testing.T) {
	l := newMetaLog()
	first := l.apply(attemptBegin{"j", 1, 11})
	require.NoError(t, first.err)
	require.Equal(t, firstBlock, first.first)
	require.False(t, first.known)
	again := l.apply(attemptBegin{"j", 1, 11})
	require.NoError(t, again.err)
	require.True(t, again.repeat)
	require.Equal(t, first.first, again.first)
	require.ErrorIs(t, l.apply(attemptBegin{"j", 1, 12}).err, ErrAttemptOver, "a competitor came second")
	require.ErrorIs(t, l.apply(attemptBegin{"j", 3, 12}).err, ErrAttemptOver, "not the successor")

	require.NoError(t, l.apply(complete{"j", ID{1, 0}, reportAt(0), nil}).err)
	c := complete{"j", ID{1, 1}, reportAt(5), ends(part("out", 0))}
	r := l.apply(c)
	require.NoError(t, r.err)
	require.Equal(t, firstBlock+1, r.first)
	r = l.apply(c)
	require.True(t, r.repeat)
	require.NoError(t, r.err)
	require.Len(t, l.m.completed, 1)

	second := l.apply(attemptBegin{"j", 2, 13})
	require.NoError(t, second.err)
	require.Equal(t, ID{1, 1}, second.last)
	require.True(t, second.known)
	require.Equal(t, firstBlock+blockSize, second.first)
	require.EqualValues(t, 1, second.base)
	require.ErrorIs(t, l.apply(complete{"j", ID{1, 2}, reportAt(6), nil}).err, ErrAttemptOver)
	require.ErrorIs(t, l.apply(attemptEnd{"j", 1}).err, ErrAttemptOver)
	r = l.apply(complete{"j", ID{2, 2}, reportAt(6), nil})
	require.Equal(t, second.first+1, r.first, "checkpoint 2 is the first of the second attempt")

	require.NoError(t, l.apply(attemptEnd{"j", 2}).err)
	require.True(t, l.apply(attemptEnd{"j", 2}).repeat)
	require.ErrorIs(t, l.apply(complete{"j", ID{2, 3}, reportAt(7), nil}).err, ErrAttemptOver)
	require.ErrorIs(t, l.apply(complete{"unknown", ID{1, 1}, nil, nil}).err, ErrAttemptOver)
	require.NoError(t, l.apply(attemptBegin{"j", 4, 14}).err, "the end was attempt 3")
}

// An owner is known from the entry that made it and over from the entry that ended it;
// the block's first id needs no memory.
func TestOwners(t *testing.T) {
	l := newMetaLog()
	check := func(id, first log.ProducerID, over, known bool) {
		t.Helper()
		f, o, k := l.m.owner(id)
		require.Equal(t, []any{first, over, known}, []any{f, o, k})
	}
	check(7, 7, false, false)
	check(firstProducer, firstProducer, false, false)
	check(firstBlock+3, firstBlock, false, false)
	require.Equal(t, firstProducer, l.apply(producerBegin{}).first)
	require.Equal(t, firstProducer+1, l.apply(producerBegin{}).first)
	l.apply(attemptBegin{"a", 1, 1})
	l.apply(attemptBegin{"b", 1, 1})
	check(firstProducer, firstProducer, false, true)
	check(firstBlock+3, firstBlock, false, true)
	check(firstBlock+blockSize+3, firstBlock+blockSize, false, true)
	l.apply(producerEnd{firstProducer})
	l.apply(attemptEnd{"b", 1})
	check(firstProducer, firstProducer, true, true)
	check(firstProducer+1, firstProducer+1, false, true)
	check(firstBlock+blockSize+3, firstBlock+blockSize, true, true)
	require.Equal(t, wait, l.m.admits(firstProducer+2))
	require.Equal(t, refuse, l.m.admits(firstProducer))
	require.Equal(t, admit, l.m.admits(firstBlock))
	l.apply(nodeStart{})
	check(firstProducer+1, firstProducer+1, true, true)
	check(firstBlock, firstBlock, true, true)
	require.Empty(t, l.m.owners, "state grows with living owners only")
	require.Empty(t, l.m.producers)
	require.Equal(t, firstProducer+2, l.apply(producerBegin{}).first, "ids are never handed out twice")
}

// The verdict on a transaction is what the order of entries says; a leader ends what is
// decided in the order of the log and leaves the rest open.
func TestVerdicts(t *testing.T) {
	l := newMetaLog()
	l.apply(attemptBegin{"j", 1, 1})
	l.apply(complete{"j", ID{1, 0}, reportAt(0), nil})
	require.Equal(t, undecided, l.m.verdict(firstBlock+1))
	l.apply(complete{"j", ID{1, 1}, reportAt(1), ends(part("out", 0))})
	l.apply(complete{"j", ID{1, 2}, reportAt(2), ends(part("out", 0), part("out", 1))})
	open := []log.ProducerID{firstBlock + 3, firstBlock + 2, firstBlock + 1}
	require.Equal(t, []ending{{firstBlock + 1, true}, {firstBlock + 2, true}}, l.m.endings(open))
	l.apply(nodeStart{})
	require.Equal(t, []ending{{firstBlock + 1, true}, {firstBlock + 2, true}, {firstBlock + 3, false}}, l.m.endings(open))
	l.apply(attemptBegin{"j", 3, 1})
	require.Equal(t, committed, l.m.verdict(firstBlock+2))
	require.Equal(t, aborted, l.m.verdict(firstBlock+3))
	require.Equal(t, undecided, l.m.verdict(firstBlock+blockSize+1))
	require.Equal(t, undecided, l.m.verdict(7), "an id of a partition copied from elsewhere is nobody's here")
}

// What is known to be durable is joined into one whole checkpoint and its transactions
// are forgotten; everything later is kept.
func TestDurableForgets(t *testing.T) {
	l := newMetaLog()
	l.apply(attemptBegin{"j", 1, 1})
	other := TaskID{"u", 1}
	zero := reportAt(0)
	zero[other] = Report{State: []byte("zero")}
	l.apply(complete{"j", ID{1, 0}, zero, nil})
	for n := int64(1); n <= 4; n++ {
		l.apply(complete{"j", ID{1, n}, reportAt(int(n)), ends(part("out", int(n)))})
	}
	j := l.m.jobs["j"]
	before := j.checkpoints
	third := j.checkpoints[3].index
	l.apply(durable{third})
	require.Len(t, j.checkpoints, 2)
	require.Equal(t, ID{1, 3}, j.checkpoints[0].id)
	require.Equal(t, reportAt(3)[TaskID{"t", 0}], j.checkpoints[0].reports[TaskID{"t", 0}])
	require.Equal(t, "zero", string(j.checkpoints[0].reports[other].State))
	require.Len(t, j.checkpoints[0].ends, 3)
	require.Len(t, before[3].reports, 1, "what was handed out before has not changed")
	require.Len(t, l.m.completed, 1)
	require.Equal(t, committed, l.m.verdict(firstBlock+4))
	l.apply(durable{third - 1})
	require.Equal(t, third, l.m.durableTo, "it never goes back")
	whole := join(j.checkpoints)
	require.Equal(t, ID{1, 4}, whole.id)
	require.Len(t, whole.ends, 4)
	require.Len(t, whole.reports, 2)
}

// A rollback makes an older checkpoint the newest, only before the attempt has completed
// anything, and numbers go on from there.
func TestRollback(t *testing.T) {
	l := newMetaLog()
	l.apply(attemptBegin{"j", 1, 1})
	for n := int64(0); n <= 3; n++ {
		l.apply(complete{"j", ID{1, n}, reportAt(int(n)), nil})
	}
	require.ErrorIs(t, l.apply(rollback{"j", 1, ID{1, 1}}).err, ErrGeneration, "the attempt has completed checkpoints")
	l.apply(attemptBegin{"j", 2, 1})
	require.ErrorIs(t, l.apply(rollback{"j", 1, ID{1, 1}}).err, ErrAttemptOver)
	require.ErrorIs(t, l.apply(rollback{"j", 2, ID{1, 9}}).err, ErrGeneration)
	r := l.apply(rollback{"j", 2, ID{1, 1}})
	require.NoError(t, r.err)
	require.EqualValues(t, 1, r.base)
	require.True(t, l.apply(rollback{"j", 2, ID{1, 1}}).repeat)
	r = l.apply(complete{"j", ID{2, 2}, reportAt(2), ends(part("out", 0))})
	require.NoError(t, r.err)
	require.Equal(t, firstBlock+blockSize+1, r.first)
	require.Equal(t, ID{2, 2}, l.apply(attemptBegin{"j", 3, 1}).last)
}

// Ids of a block and blocks end; both are errors, not reuse.
func TestIdsRunOut(t *testing.T) {
	l := newMetaLog()
	l.apply(attemptBegin{"j", 1, 1})
	require.ErrorIs(t, l.apply(complete{"j", ID{1, int64(blockSize)}, nil, nil}).err, ErrExhausted)
	require.NoError(t, l.apply(complete{"j", ID{1, int64(blockSize) - 1}, nil, nil}).err)
	l.m.nextBlock = lastBlock
	require.ErrorIs(t, l.apply(attemptBegin{"j", 2, 1}).err, ErrExhausted)
	require.Positive(t, int64(lastBlock+(blockSize-1)), "the last id is a positive number")
	l.m.nextProducer = firstBlock
	require.ErrorIs(t, l.apply(producerBegin{}).err, ErrExhausted)
}

// Attempts that an unclean stop ended stay suspect until the job completes something.
func TestSuspects(t *testing.T) {
	l := newMetaLog()
	l.apply(attemptBegin{"j", 1, 1})
	l.apply(complete{"j", ID{1, 0}, reportAt(0), nil})
	l.apply(nodeStart{unclean: true})
	l.apply(attemptBegin{"j", 3, 1})
	l.apply(nodeStart{unclean: true})
	l.apply(nodeStart{unclean: true})
	require.Equal(t, []block{{1, firstBlock, 0}, {3, firstBlock + blockSize, 0}}, l.m.jobs["j"].suspects)
	l.apply(attemptBegin{"j", 5, 1})
	l.apply(complete{"j", ID{5, 1}, reportAt(1), nil})
	require.Empty(t, l.m.jobs["j"].suspects)
	l.apply(nodeStart{})
	require.Empty(t, l.m.jobs["j"].suspects)
}

// someEntries is a metadata log with every kind of entry in it.
func someEntries() []entry {
	full := map[TaskID]Report{
		{"count", 0}: {
			Inputs:     []Input{{part("in", 0), log.Position{Offset: 5, Epoch: 1}}, {part("in", 1), log.Position{Offset: 1 << 40, Epoch: 3}}},
			Changelogs: []Changelog{{part("changelog", 0), log.Position{Offset: 9, Epoch: 1}}},
			State:      []byte("watermark"),
		},
		{"count", 7}: {},
	}
	return []entry{
		nodeStart{unclean: true}, producerBegin{}, producerBegin{}, producerEnd{firstProducer},
		attemptBegin{"job", 1, 1 << 63}, complete{"job", ID{1, 0}, full, map[log.TopicPartition]log.Position{}},
		complete{"job", ID{1, 1}, reportAt(4), ends(part("out", 0), part("out", 1), part("changelog", 0))},
		complete{"job", ID{1, 2}, reportAt(6), ends(part("out", 1))},
		attemptBegin{"other", 1, 5}, attemptEnd{"other", 1}, durable{5},
		nodeStart{unclean: true}, attemptBegin{"job", 3, 9}, rollback{"job", 3, ID{1, 1}},
		complete{"job", ID{3, 2}, reportAt(7), ends(part("out", 0))},
		snapshotPart{1, 3, []byte("data")},
	}
}

func TestEntriesDecodeToWhatWasEncoded(t *testing.T) {
	for _, e := range someEntries() {
		b := encodeEntry(nil, e)
		got, err := decodeEntry(b)
		require.NoError(t, err, "%T", e)
		require.Equal(t, e, got)
		for n := range b {
			_, err := decodeEntry(b[:n])
			require.Error(t, err, "%T cut to %d bytes", e, n)
		}
		_, err = decodeEntry(append(b, 0))
		require.ErrorIs(t, err, ErrInvalid)
		b[0]++
		_, err = decodeEntry(b)
		require.ErrorIs(t, err, ErrVersion)
	}
	_, err := decodeEntry([]byte{entryVersion, 99})
	require.ErrorIs(t, err, ErrInvalid)
}

// The bytes of an entry and of a snapshot are part of the format: a change of them needs
// a new version.
func TestFormatStaysAsItIs(t *testing.T) {
	var got bytes.Buffer
	l := newMetaLog()
	for _, e := range someEntries() {
		fmt.Fprintf(&got, "%x\n", encodeEntry(nil, e))
		l.apply(e)
	}
	fmt.Fprintf(&got, "%x\n", encodeSnapshot(nil, l.m))
	golden(t, "testdata/format/metadata.v1.hex", got.Bytes())
}

// A snapshot holds all that later entries depend on: the log cut at any place gives the
// same state, and so does one that was cut where an older end remains.
func TestSnapshotReplacesWhatIsBefore(t *testing.T) {
	entries := someEntries()
	entries = append(entries[:len(entries)-1], groupEntries()...)
	whole := newReplayer(0)
	for i, e := range entries {
		require.NoError(t, whole.add(int64(i), encodeEntry(nil, e)))
	}
	want, err := whole.finish()
	require.NoError(t, err)
	for cut := range entries {
		l := newMetaLog()
		for _, e := range entries[:cut] {
			l.apply(e)
		}
		snapshot := encodeSnapshot(nil, l.m)
		third := (len(snapshot) + 2) / 3
		r := newReplayer(100)
		index := int64(100)
		add := func(e entry) {
			require.NoError(t, r.add(index, encodeEntry(nil, e)))
			index++
		}
		// What an unfinished cut left: old entries, and a snapshot without its end.
		add(durable{3})
		add(snapshotPart{0, 3, snapshot[:third]})
		add(nodeStart{})
		_, err := r.finish()
		require.ErrorIs(t, err, ErrInvalid)
		for i := range 3 {
			add(snapshotPart{i, 3, snapshot[min(i*third, len(snapshot)):min((i+1)*third, len(snapshot))]})
		}
		got, err := r.finish()
		require.NoError(t, err)
		require.Equal(t, encodeSnapshot(nil, l.m), encodeSnapshot(nil, got))
		require.Equal(t, index-1, got.applied)
		got.applied = int64(cut - 1)
		for i, e := range entries[cut:] {
			r.state.apply(int64(cut+i), e)
		}
		require.Equal(t, encodeSnapshot(nil, want), encodeSnapshot(nil, r.state), "cut at %d", cut)
		require.Equal(t, want.owners, r.state.owners)
	}
	r := newReplayer(0)
	require.ErrorIs(t, r.add(0, encodeEntry(nil, snapshotPart{1, 3, nil})), ErrInvalid)
	require.ErrorIs(t, r.add(0, encodeEntry(nil, snapshotPart{0, 1, []byte("nonsense")})), ErrInvalid)
}

func TestSnapshotIsCutIntoParts(t *testing.T) {
	b := bytes.Repeat([]byte("0123456789"), 250_000)
	parts := cutSnapshot(b)
	require.Len(t, parts, 3)
	var joined []byte
	for i, p := range parts {
		require.Equal(t, i, p.part)
		require.Equal(t, 3, p.parts)
		joined = append(joined, p.data...)
	}
	require.Equal(t, b, joined)
}
