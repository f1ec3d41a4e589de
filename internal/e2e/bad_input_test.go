package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
	"github.com/thalweg/thalweg/window"
)

var (
	votes = topic.New[string, int64]("votes").Partitions(2).Sync(log.SyncAlways)
	tally = topic.New[string, int64]("tally").Sync(log.SyncAlways)
)

// countVotes adds up the votes of each candidate and emits every new sum.
func countVotes() *stream.Topology {
	app := stream.New("count-votes").Checkpoint(checkpoint.Every(20 * time.Millisecond))
	app.Stream(votes).GroupByKey().Emit(window.OnUpdate).Reduce(func(a, b int64) int64 { return a + b }).To(tally)
	return app
}

// inMemory opens a node of small segments on a file system that tests can harm.
func inMemory(fs vfs.FS) (*thalweg.Node, error) {
	return thalweg.Options{
		Log:          log.Options{FS: fs, SegmentBytes: 2 << 10, MaxBatchBytes: 64 << 10, IndexIntervalBytes: 200},
		SyncInterval: -1,
	}.Open("node")
}

// elect sends the votes of a round and has them counted.
func elect(ctx context.Context, node *thalweg.Node, round int64) error {
	producer, err := node.Producer(votes)
	if err != nil {
		return err
	}
	defer producer.Close() // after Flush nothing is left to send
	job, err := node.Start(ctx, countVotes())
	if err != nil {
		return err
	}
	for i := range int64(20) {
		if err := producer.Queue(ctx, fmt.Sprint("candidate ", i%5), 100*round+i); err != nil {
			return errors.Join(err, job.Stop(ctx))
		}
	}
	if err := producer.Flush(ctx); err != nil {
		return errors.Join(err, job.Stop(ctx))
	}
	return errors.Join(job.CatchUp(ctx), job.Stop(ctx))
}

// sums are the last sums after so many rounds.
func sums(rounds int64) map[string]int64 {
	all := map[string]int64{}
	for round := range rounds {
		for i := range int64(20) {
			all[fmt.Sprint("candidate ", i%5)] += 100*(round+1) + i
		}
	}
	return all
}

// contents is what a reader of committed records got, in its order.
type contents struct {
	votes []topic.Record[string, int64]
	tally []topic.Record[string, int64]
}

// lastSums are the newest sums that were read.
func (c contents) lastSums() map[string]int64 {
	last := map[string]int64{}
	for _, r := range c.tally {
		last[r.Key] = r.Value
	}
	return last
}

// readBoth reads each partition of both topics up to its end or the first error, and
// keeps what came before that.
func readBoth(ctx context.Context, node *thalweg.Node) (contents, error) {
	var c contents
	var errs []error
	for r, err := range node.ReadToEnd(ctx, votes, topic.Start()) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		c.votes = append(c.votes, r)
	}
	for r, err := range node.ReadToEnd(ctx, tally, topic.Start()) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		c.tally = append(c.tally, r)
	}
	return c, errors.Join(errs...)
}

// requirePart requires that every record of got is one of want, once.
func requirePart(t *testing.T, want, got []topic.Record[string, int64], what string) {
	t.Helper()
	type place struct {
		partition int
		offset    int64
	}
	known := map[place]topic.Record[string, int64]{}
	for _, r := range want {
		known[place{r.Partition, r.Offset}] = r
	}
	for _, r := range got {
		at := place{r.Partition, r.Offset}
		require.Equal(t, known[at], r, what)
		delete(known, at)
	}
}

// sound is a node's directory with all kinds of files in it, after a clean stop or
// after a kill, all of it below the recovery points.
func sound(t *testing.T, clean bool) (*vfs.Mem, contents) {
	t.Helper()
	mem := vfs.NewMem()
	node, err := inMemory(mem)
	require.NoError(t, err)
	for round := range int64(4) {
		require.NoError(t, elect(t.Context(), node, round+1))
	}
	want, err := readBoth(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, sums(4), want.lastSums())
	require.Len(t, want.votes, 80)
	require.Len(t, want.tally, 80)
	require.NoError(t, node.Close())
	if !clean {
		node, err = inMemory(mem)
		require.NoError(t, err)
		killed := mem.Kill()
		require.NoError(t, node.Close())
		mem = killed
	}
	return mem, want
}

// files returns the names of all files below dir.
func files(t *testing.T, mem *vfs.Mem, dir string) (all []string) {
	t.Helper()
	names, err := mem.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join(dir, name)
		if _, err := mem.List(name); err == nil {
			all = append(all, files(t, mem, name)...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// kindOf names the kind of a file: its extension, or else its name.
func kindOf(name string) string {
	if ext := path.Ext(name); ext != "" && !strings.HasPrefix(path.Base(name), ".") {
		return ext
	}
	return path.Base(name)
}

// change rewrites a file.
func change(t *testing.T, mem *vfs.Mem, name string, f func([]byte) []byte) {
	t.Helper()
	file, err := mem.Open(name)
	require.NoError(t, err)
	defer file.Close()
	size, err := file.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = file.ReadAt(b, 0)
		require.NoError(t, err)
	}
	b = f(b)
	require.NoError(t, file.Truncate(int64(len(b))))
	_, err = file.WriteAt(b, 0)
	require.NoError(t, err)
}

// isTold tells whether err says what is wrong with the directory.
func isTold(err error) bool {
	_, damaged := errors.AsType[*log.CorruptionError](err)
	return damaged || errors.Is(err, log.ErrVersion) || errors.Is(err, thalweg.ErrFormat)
}

// tryDamaged opens a harmed directory, reads all of it and goes on with it. It returns
// how it ended: "unharmed", or where the damage was told. Whatever was read on the way
// must be what was written.
func tryDamaged(t *testing.T, mem *vfs.Mem, want contents, what string) string {
	t.Helper()
	ctx := t.Context()
	node, err := inMemory(mem)
	if err != nil {
		require.True(t, isTold(err), "%s: open: %v", what, err)
		return "told by Open"
	}
	defer node.Close() // it may have been told of the damage by then
	got, err := readBoth(ctx, node)
	requirePart(t, want.votes, got.votes, what)
	requirePart(t, want.tally, got.tally, what)
	if err != nil {
		require.True(t, isTold(err), "%s: read: %v", what, err)
		return "told by Read"
	}
	require.Len(t, got.votes, len(want.votes), what)
	require.Len(t, got.tally, len(want.tally), what)
	if err := elect(ctx, node, 5); err != nil {
		require.True(t, isTold(err), "%s: run: %v", what, err)
		return "told by Run"
	}
	got, err = readBoth(ctx, node)
	require.NoError(t, err, what)
	require.Equal(t, sums(5), got.lastSums(), what)
	require.Len(t, got.tally, len(want.tally)+20, what)
	require.NoError(t, node.Close(), what)
	return "unharmed"
}

// restored requires that a directory in which the one damaged file is put back as it
// was has lost nothing, so that whoever was told of the damage had nothing cut away.
func restored(t *testing.T, mem *vfs.Mem, name string, before []byte, want contents, what string) {
	t.Helper()
	change(t, mem, name, func([]byte) []byte { return before })
	node, err := inMemory(mem)
	require.NoError(t, err, what)
	got, err := readBoth(t.Context(), node)
	require.NoError(t, err, what)
	require.Equal(t, want, got, what)
	require.NoError(t, node.Close(), what)
}

// A damaged byte in any field of any file of a node is either harmless, because the
// file can be made anew, or told with an error that says what is damaged. Readers
// never get anything but what was written, and nothing is cut away.
func TestDamagedByteInAnyFile(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean stop %t", clean), func(t *testing.T) {
			mem, want := sound(t, clean)
			outcomes := map[string]int{}
			for _, name := range files(t, mem, "node") {
				size, err := mem.Size(name)
				require.NoError(t, err)
				for i, at := range places(name, size) {
					if testing.Short() && i%4 != 0 {
						continue
					}
					what := fmt.Sprintf("%s at byte %d of %d", name, at, size)
					harmed := mem.Kill()
					var before []byte
					change(t, harmed, name, func(b []byte) []byte {
						before = slices.Clone(b)
						b[at] ^= 0xff
						return b
					})
					outcome := tryDamaged(t, harmed, want, what)
					outcomes[kindOf(name)+" "+outcome]++
					if outcome == "told by Open" {
						restored(t, harmed, name, before, want, what)
					}
				}
			}
			for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
				t.Logf("%4d %s", outcomes[outcome], outcome)
			}
			require.Positive(t, outcomes[".log told by Open"]+outcomes[".log told by Read"])
			require.Positive(t, outcomes["thalweg-topics told by Open"])
			require.Positive(t, outcomes["FORMAT told by Open"])
			for _, index := range []string{".index", ".timeindex", ".seal", ".snapshot"} {
				require.Positive(t, outcomes[index+" unharmed"], index)
				for _, told := range []string{" told by Open", " told by Read", " told by Run"} {
					require.Zero(t, outcomes[index+told], "%s can be made anew", index)
				}
			}
		})
	}
}

// places are the bytes of a file to damage: all of a short one; of a segment each
// field of the first batch, and more all over it.
func places(name string, size int64) (all []int64) {
	step := max(1, size/12)
	if path.Ext(name) == ".log" {
		for _, at := range []int64{0, 7, 8, 11, 15, 16, 20, 22, 26, 34, 42, 50, 52, 56, 60} {
			if at < size {
				all = append(all, at)
			}
		}
		step = max(61, size/4)
	}
	for at := step / 2; at < size; at += step {
		all = append(all, at)
	}
	return all
}

// A file that lost its end is the same: made anew, or told.
func TestTruncatedFile(t *testing.T) {
	mem, want := sound(t, true)
	outcomes := map[string]int{}
	for _, name := range files(t, mem, "node") {
		size, err := mem.Size(name)
		require.NoError(t, err)
		for _, kept := range []int64{0, 1, size / 2, size - 1} {
			if kept < 0 || kept >= size {
				continue
			}
			what := fmt.Sprintf("%s cut at %d of %d", name, kept, size)
			harmed := mem.Kill()
			change(t, harmed, name, func(b []byte) []byte { return b[:kept] })
			outcome := tryDamaged(t, harmed, want, what)
			outcomes[kindOf(name)+" "+outcome]++
			if path.Ext(name) == ".log" {
				require.NotEqual(t, "unharmed", outcome, what)
			}
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[outcome], outcome)
	}
}

// A length that no batch can have is damage where it stands, and nothing is allocated
// for it.
func TestImpossibleLength(t *testing.T) {
	mem, want := sound(t, true)
	const name = "node/log/votes-0/00000000000000000000.log"
	for _, length := range []uint32{0, 1, 48, math.MaxInt32, 1 << 31, math.MaxUint32} {
		harmed := mem.Kill()
		change(t, harmed, name, func(b []byte) []byte {
			b[8], b[9], b[10], b[11] = byte(length>>24), byte(length>>16), byte(length>>8), byte(length)
			return b
		})
		node, err := inMemory(harmed)
		if err == nil {
			var got contents
			got, err = readBoth(t.Context(), node)
			require.Equal(t, want.tally, got.tally, "another topic is not touched")
			require.NoError(t, node.Close())
		}
		damage, ok := errors.AsType[*log.CorruptionError](err)
		require.True(t, ok, "length %d: %v", length, err)
		require.Equal(t, name, damage.File)
		require.Zero(t, damage.Position)
		require.LessOrEqual(t, damage.Offset, log.Offset(0), "the first one, or unknown")
	}
}

// requireAlive requires that a node still takes and gives records, and has the values
// that were acknowledged before.
func requireAlive(t *testing.T, node *thalweg.Node, before ...int64) {
	t.Helper()
	producer, err := node.Producer(votes)
	require.NoError(t, err)
	require.NoError(t, producer.Send(t.Context(), "k", -1))
	require.NoError(t, producer.Close())
	require.Equal(t, append(before, -1), valuesOf(t, node))
}

// valuesOf are the values in the partition of key k.
func valuesOf(t *testing.T, node *thalweg.Node) (values []int64) {
	t.Helper()
	for r, err := range node.ReadToEnd(t.Context(), votes, topic.Start()) {
		require.NoError(t, err)
		require.Equal(t, "k", r.Key)
		values = append(values, r.Value)
	}
	return values
}

// A record that no segment can hold is refused by its size, before it is copied.
func TestRecordOfTwoGiB(t *testing.T) {
	file, err := vfs.OS().Create(t.TempDir() + "/empty")
	require.NoError(t, err)
	defer file.Close()
	m, err := file.Map(2 << 30) // touching any of it would be a fault
	if err != nil {
		t.Skipf("cannot map beyond the end of a file: %v", err)
	}
	defer m.Unmap()
	huge := codec.Func(
		func(dst []byte, v []byte) ([]byte, error) { return v, nil },
		func(src []byte) ([]byte, error) { return src, nil })
	blobs := topic.New[string, []byte]("blobs").ValueCodec(huge)
	node := openNode(t)
	producer, err := node.Producer(blobs)
	require.NoError(t, err)
	require.NoError(t, producer.Send(t.Context(), "k", []byte("small")))
	for range 2 {
		err = producer.Send(t.Context(), "k", m.Bytes())
		tooLarge, ok := errors.AsType[*topic.TooLargeError](err)
		require.True(t, ok, "%v", err)
		require.ErrorIs(t, err, log.ErrTooLarge)
		require.Equal(t, "blobs", tooLarge.Topic)
		require.GreaterOrEqual(t, tooLarge.Size, 2<<30)
		require.ErrorContains(t, err, `topic "blobs": a record of 21474`)
	}
	require.NoError(t, producer.Send(t.Context(), "k", []byte("after")))
	var got []string
	for r, err := range node.ReadToEnd(t.Context(), blobs, topic.Start()) {
		require.NoError(t, err)
		got = append(got, string(r.Value))
	}
	require.Equal(t, []string{"small", "after"}, got)
}

// fillDisk sends records until the disk is full and returns the values acknowledged.
func fillDisk(t *testing.T, node *thalweg.Node) (acknowledged []int64) {
	t.Helper()
	producer, err := node.Producer(votes)
	require.NoError(t, err)
	defer producer.Close()
	for i := range int64(1_000_000) {
		err := producer.Send(t.Context(), "k", i)
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.ErrorContains(t, err, "votes-")
			require.NotErrorIs(t, err, topic.ErrUnknown, "the record is not there")
			return acknowledged
		}
		acknowledged = append(acknowledged, i)
	}
	t.Fatal("the disk was never full")
	return nil
}

// On a full disk Send fails and so does a job that has to write; what was acknowledged
// stays, and with room again both go on, without being opened again.
func TestFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	node, err := inMemory(mem)
	require.NoError(t, err)
	require.NoError(t, node.Create(t.Context(), votes, tally))
	used := int64(0)
	for _, name := range files(t, mem, "node") {
		size, err := mem.Size(name)
		require.NoError(t, err)
		used += (size + 4095) &^ 4095
	}
	mem.SetCapacity(used + 400<<10)
	acknowledged := fillDisk(t, node)
	require.NotEmpty(t, acknowledged)
	require.Equal(t, acknowledged, valuesOf(t, node))
	err = node.Run(t.Context(), countVotes().StopAt(topic.End()))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, `job "count-votes"`)

	mem.SetCapacity(0)
	requireAlive(t, node, acknowledged...)
	require.NoError(t, node.Run(t.Context(), countVotes().StopAt(topic.End())))
	sum, got := int64(-1), int64(0)
	for _, v := range acknowledged {
		sum += v
	}
	results := 0
	for r, err := range node.ReadToEnd(t.Context(), tally, topic.Start()) {
		require.NoError(t, err)
		got = r.Value
		results++
	}
	require.Equal(t, sum, got)
	require.Equal(t, len(acknowledged)+1, results, "every change once")
	require.NoError(t, node.Close())
	node, err = inMemory(mem)
	require.NoError(t, err)
	require.Equal(t, append(acknowledged, -1), valuesOf(t, node))
	require.NoError(t, node.Close())
}

// Without permission to make files what is there stays readable, and sending goes on
// once there is permission again.
func TestPermissionTakenAway(t *testing.T) {
	mem := vfs.NewMem()
	node, err := inMemory(mem)
	require.NoError(t, err)
	producer, err := node.Producer(votes)
	require.NoError(t, err)
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate {
			return fs.ErrPermission
		}
		return nil
	})
	var acknowledged []int64
	for i := int64(0); ; i++ { // until the segment is full
		require.Less(t, i, int64(10_000))
		err = producer.Send(t.Context(), "k", i)
		if err != nil {
			break
		}
		acknowledged = append(acknowledged, i)
	}
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "votes-")
	require.ErrorIs(t, node.Create(t.Context(), tally), fs.ErrPermission)
	require.Equal(t, acknowledged, valuesOf(t, node))
	mem.SetHook(nil)
	require.NoError(t, producer.Close())
	requireAlive(t, node, acknowledged...)
	require.NoError(t, node.Close())
}

// Every use of a closed node, and of what it gave away, is refused.
func TestClosedNode(t *testing.T) {
	node, err := inMemory(vfs.NewMem())
	require.NoError(t, err)
	require.NoError(t, elect(t.Context(), node, 1))
	producer, err := node.Producer(votes)
	require.NoError(t, err)
	require.NoError(t, node.Close())
	require.ErrorIs(t, producer.Send(t.Context(), "k", 1), topic.ErrClosed)
	_, err = readBoth(t.Context(), node)
	require.ErrorIs(t, err, thalweg.ErrClosed)
	_, err = node.Producer(votes)
	require.ErrorIs(t, err, thalweg.ErrClosed)
	require.ErrorIs(t, node.Create(t.Context(), votes), thalweg.ErrClosed)
	require.ErrorIs(t, node.Delete(t.Context(), votes), thalweg.ErrClosed)
	require.ErrorIs(t, node.Run(t.Context(), countVotes()), thalweg.ErrClosed)
	require.NoError(t, node.Close())
}

// Input that is wrong by itself is refused with an error that says what is wrong, and
// harms nothing that was there.
func TestRefusedInput(t *testing.T) {
	boom := errors.New("no such luck")
	failing := codec.Func(
		func(dst []byte, v int64) ([]byte, error) {
			if v == 13 {
				return dst, boom
			}
			return append(dst, byte(v)), nil
		},
		func(src []byte) (int64, error) { return 0, boom })
	tests := map[string]struct {
		do    func(ctx context.Context, node *thalweg.Node) error
		is    error
		texts []string
	}{
		"a name with a path in it": {
			func(ctx context.Context, node *thalweg.Node) error {
				return node.Create(ctx, topic.New[string, int64]("../votes"))
			}, log.ErrInvalidName, []string{`../votes`}},
		"a reserved name": {
			func(ctx context.Context, node *thalweg.Node) error {
				_, err := node.Producer(topic.New[string, int64]("__votes"))
				return err
			}, log.ErrInvalidName, []string{"__votes"}},
		"a tombstone without a key": {
			func(ctx context.Context, node *thalweg.Node) error {
				producer, err := node.Producer(votes)
				if err != nil {
					return err
				}
				_, _, err = producer.SendRecord(ctx, topic.Record[string, int64]{NoKey: true, Deleted: true})
				return errors.Join(err, producer.Close())
			}, topic.ErrNoKey, []string{`"votes"`}},
		"a nil key where the topic chooses the partition by it": {
			func(ctx context.Context, node *thalweg.Node) error {
				keyed := topic.New[[]byte, int64]("keyed").PartitionBy(func(k []byte, n int) int { return int(k[0]) % n })
				producer, err := node.Producer(keyed)
				if err != nil {
					return err
				}
				return errors.Join(producer.Send(ctx, nil, 1), producer.Close())
			}, topic.ErrNoKey, []string{`"keyed"`, "PartitionBy"}},
		"a value that its codec refuses": {
			func(ctx context.Context, node *thalweg.Node) error {
				producer, err := node.Producer(topic.New[string, int64]("lucky").ValueCodec(failing))
				if err != nil {
					return err
				}
				return errors.Join(producer.Send(ctx, "k", 13), producer.Close())
			}, boom, []string{`topic "lucky"`, "encode value of type int64"}},
		"a stored value that its codec refuses": {
			func(ctx context.Context, node *thalweg.Node) error {
				for _, err := range node.ReadToEnd(ctx, votes.ValueCodec(failing), topic.Start()) {
					if err != nil {
						return err
					}
				}
				return nil
			}, boom, []string{`topic "votes"`, "decode value of type int64", "offset 0"}},
		"a stored value that its codec refuses, in a job": {
			func(ctx context.Context, node *thalweg.Node) error {
				app := stream.New("undecodable").StopAt(topic.End())
				app.Stream(votes.ValueCodec(failing)).To(tally)
				return node.Run(ctx, app)
			}, boom, []string{`job "undecodable"`, "votes", "offset 0", "bad_input_test.go"}},
		"a result that its codec refuses": {
			func(ctx context.Context, node *thalweg.Node) error {
				app := stream.New("unencodable").StopAt(topic.End())
				app.Stream(votes).Map(func(int64) int64 { return 13 }).To(topic.New[string, int64]("unlucky").ValueCodec(failing))
				return node.Run(ctx, app)
			}, boom, []string{`job "unencodable"`, `step "to"`, "topic votes", "offset 0", "encode value"}},
		"a panic with an error": {
			func(ctx context.Context, node *thalweg.Node) error {
				app := stream.New("panics").StopAt(topic.End())
				app.Stream(votes).Map(func(int64) int64 { panic(boom) }).As("hopeless").To(tally)
				return node.Run(ctx, app)
			}, boom, []string{`job "panics"`, `step "hopeless"`, "topic votes", "offset 0", "panic: no such luck"}},
		"a panic in the choice of a partition, which is the caller's": {
			func(ctx context.Context, node *thalweg.Node) (err error) {
				defer func() { err, _ = recover().(error) }()
				wild := topic.New[string, int64]("wild").PartitionBy(func(string, int) int { panic(boom) })
				producer, err := node.Producer(wild)
				if err != nil {
					return err
				}
				return errors.Join(producer.Send(ctx, "k", 1), producer.Close())
			}, boom, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node, err := inMemory(vfs.NewMem())
			require.NoError(t, err)
			requireAlive(t, node)
			err = test.do(t.Context(), node)
			require.Error(t, err)
			require.ErrorIs(t, err, test.is)
			for _, text := range test.texts {
				require.ErrorContains(t, err, text)
			}
			requireAlive(t, node, -1)
			var out contents
			out, err = readBoth(t.Context(), node)
			require.NoError(t, err)
			require.Empty(t, out.tally, "nothing of what failed is there")
			require.NoError(t, node.Close())
		})
	}
}

// A clock that jumps by years in both directions, between records, checkpoints and
// restarts, changes the times of records that brought none, and nothing else.
func TestClockThatJumps(t *testing.T) {
	var now jumping
	mem := vfs.NewMem()
	start := time.Date(2020, time.May, 1, 0, 0, 0, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	for round, offset := range []time.Duration{0, 10 * year, -30 * year, -31 * year, 5 * year, 0, 200 * year} {
		now.set(start.Add(offset))
		node, err := thalweg.Options{
			Log: log.Options{
				FS: mem, Now: now.now, SegmentBytes: 2 << 10, MaxBatchBytes: 64 << 10,
				SegmentAge: time.Hour, ProducerExpiry: time.Hour,
			},
			SyncInterval: -1,
		}.Open("node")
		require.NoError(t, err)
		require.NoError(t, elect(t.Context(), node, int64(2*round+1)))
		now.set(start.Add(offset - 7*year)) // and while it is open
		require.NoError(t, elect(t.Context(), node, int64(2*round+2)))
		got, err := readBoth(t.Context(), node)
		require.NoError(t, err)
		require.Equal(t, sums(int64(2*round+2)), got.lastSums())
		require.Len(t, got.votes, 40*(round+1))
		require.Len(t, got.tally, 40*(round+1), "every change once")
		for _, r := range got.votes {
			if r.Value/100 == int64(2*round+2) {
				require.Equal(t, now.now().UnixMilli(), r.Time.UnixMilli(), "records without a time have the node's")
			}
		}
		if round%2 == 0 {
			require.NoError(t, node.Close())
			continue
		}
		killed := mem.Kill()
		require.NoError(t, node.Close())
		mem = killed
	}
}

// jumping is a clock that stands where it is set.
type jumping struct{ ms atomic.Int64 }

func (j *jumping) set(t time.Time) { j.ms.Store(t.UnixMilli()) }
func (j *jumping) now() time.Time  { return time.UnixMilli(j.ms.Load()) }
