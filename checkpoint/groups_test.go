package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/group"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
)

func groupAt(topic string) group.Partition { return group.Partition{Topic: topic} }

// joined makes member the owner of partition 0 of the topics and returns the grant's
// epoch.
func joined(p *Plane, member group.MemberID, static string, topics ...string) (int64, error) {
	if err := p.ProposeGroup(context.Background(), group.Join{Group: "g", Member: member, Static: static, Session: 30_000}); err != nil {
		return 0, err
	}
	var c group.SetTarget
	p.Group("g", func(g *group.Group) {
		c = group.SetTarget{Group: "g", Epoch: g.Epoch, Target: map[group.Partition]group.MemberID{}}
		for _, t := range topics {
			c.Target[groupAt(t)] = member
		}
	})
	return c.Epoch + 1, p.ProposeGroup(context.Background(), c)
}

func commitOf(member group.MemberID, epoch int64, offsets map[string]int64) group.Commit {
	c := group.Commit{Group: "g", Member: member}
	for _, topic := range sortedOrdered(offsets) {
		c.Positions = append(c.Positions, group.Committed{
			Grant: group.Grant{Partition: groupAt(topic), Epoch: epoch}, Position: group.Position{Offset: offsets[topic], LeaderEpoch: 1},
		})
	}
	return c
}

func positions(p *Plane) (at map[string]int64) {
	at = map[string]int64{}
	p.Group("g", func(g *group.Group) {
		if g != nil {
			for part := range g.Positions {
				if pos, ok := g.Position(part); ok {
					at[part.Topic] = pos.Offset
				}
			}
		}
	})
	return at
}

// Positions outlive the process, through a snapshot and without one; its members do not,
// but for static ones, which are away.
func TestGroupsOutliveTheProcess(t *testing.T) {
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	epoch, err := joined(p, 1, "one", "a", "b")
	require.NoError(t, err)
	require.NoError(t, p.ProposeGroup(t.Context(), group.Join{Group: "g", Member: 2, Session: 1}))
	require.NoError(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"a": 5, "b": 6})))
	require.ErrorIs(t, p.ProposeGroup(t.Context(), commitOf(2, epoch, map[string]int64{"a": 9})), group.ErrStale)
	for range 2 {
		p, fs = reopen(t, fs)
		require.Equal(t, map[string]int64{"a": 5, "b": 6}, positions(p))
		require.ErrorIs(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"a": 9})), group.ErrNotMember)
		p.Group("g", func(g *group.Group) {
			require.Len(t, g.Members, 1)
			require.NotZero(t, g.Members[1].Away)
			require.Len(t, g.Owners, 2)
		})
		require.NoError(t, p.cut(t.Context(), true))
	}
	require.Equal(t, []string{"g"}, p.Groups())
	require.NoError(t, p.ForgetTopic(t.Context(), "a"))
	require.Equal(t, map[string]int64{"b": 6}, positions(p))
	end := p.meta.End()
	require.NoError(t, p.ForgetTopic(t.Context(), "a"))
	require.Equal(t, end, p.meta.End(), "there is nothing to forget")
}

// A commit waits for the disk exactly where one of its topics does.
func TestPositionsAreAsDurableAsTheirTopics(t *testing.T) {
	fs := vfs.NewMem()
	p, err := openPlane(fs)
	require.NoError(t, err)
	require.NoError(t, p.Log().Create("lazy", log.TopicSpec{Partitions: 1}))
	require.NoError(t, p.Log().Create("strict", log.TopicSpec{Partitions: 1, Sync: log.SyncAlways}))
	epoch, err := joined(p, 1, "", "lazy", "strict")
	require.NoError(t, err)
	require.NoError(t, p.meta.Sync(t.Context()))
	durable := p.meta.Durable()
	require.NoError(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"lazy": 5})))
	require.Equal(t, durable, p.meta.Durable())
	require.NoError(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"lazy": 6, "strict": 7})))
	require.Equal(t, p.meta.End().Offset, p.meta.Durable())
}

// Who waits for a group hears of changes of members and owners, not of positions.
func TestGroupChanged(t *testing.T) {
	p, err := openPlane(vfs.NewMem())
	require.NoError(t, err)
	defer p.Close()
	heard := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	ch, other := p.GroupChanged("g"), p.GroupChanged("other")
	epoch, err := joined(p, 1, "", "a")
	require.NoError(t, err)
	require.True(t, heard(ch))
	require.False(t, heard(other))
	ch = p.GroupChanged("g")
	require.NoError(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"a": 5})))
	require.False(t, heard(ch))
	require.NoError(t, p.ForgetTopic(t.Context(), "a"))
	require.True(t, heard(ch))
	require.True(t, heard(other), "it may concern every group")
}

// Static members that stay away lose their place after their session, groups that stay
// empty are forgotten after the retention; both without anybody asking.
func TestGroupsEndByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		o := PlaneOptions{FS: fs, SyncInterval: -1, GroupRetention: time.Hour, Log: log.Options{SegmentBytes: 32 << 10, MaxBatchBytes: 32 << 10}}
		p, err := Open(fakeDir, o)
		require.NoError(t, err)
		epoch, err := joined(p, 1, "one", "a")
		require.NoError(t, err)
		require.NoError(t, p.ProposeGroup(t.Context(), commitOf(1, epoch, map[string]int64{"a": 5})))
		require.NoError(t, p.Close())

		p, err = Open(fakeDir, o)
		require.NoError(t, err)
		members := func() (n int) {
			p.Group("g", func(g *group.Group) { n = len(g.Members) })
			return n
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, members())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, members())
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]int64{"a": 5}, positions(p))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Empty(t, p.Groups())
		require.NoError(t, p.Close())
	})
}

// liveGroup is a life of the process in which a consumer commits. acked has what was
// acknowledged by topic, sent what may have been written.
func liveGroup(fs vfs.FS, acked, sent map[string]int64) (err error) {
	p, err := openPlane(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for topic, sync := range map[string]log.Sync{"lazy": log.SyncByOS, "strict": log.SyncAlways} {
		if err := p.Log().Create(topic, log.TopicSpec{Partitions: 1, Sync: sync}); err != nil {
			return err
		}
	}
	epoch, err := joined(p, 1, "", "lazy", "strict")
	if err != nil {
		return err
	}
	for i := int64(1); i <= 12; i++ {
		c := map[string]int64{"lazy": i, "strict": i}
		if i%3 == 0 {
			delete(c, "strict")
		}
		for topic, off := range c {
			sent[topic] = off
		}
		if err := p.ProposeGroup(context.Background(), commitOf(1, epoch, c)); err != nil {
			return err
		}
		for topic, off := range c {
			acked[topic] = off
		}
		if i == 6 {
			if err := p.SyncAll(context.Background()); err != nil {
				return err
			}
		}
		if i == 9 {
			if err := p.cut(context.Background(), true); err != nil {
				return err
			}
		}
	}
	return nil
}

// After a stop at any file operation, with pages dropped or torn, the positions are
// whole commits: after a kill the last one acknowledged or the one on its way, after a
// power cut at least the last one that waited for the disk.
func TestCommitsOfPositionsStopAtEveryFileOperation(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-crash.seed)", seed)
	fs := vfs.NewMem()
	require.NoError(t, liveGroup(fs, map[string]int64{}, map[string]int64{}))
	total := fs.Ops()
	every := int64(1)
	if testing.Short() {
		every = 5
	}
	random := rand.New(rand.NewPCG(seed, 2))
	for n := 1 + random.Int64N(every); n <= total; n += every {
		for _, powerCut := range []bool{false, true} {
			fs := vfs.NewMem()
			fs.StopAt(n)
			acked, sent := map[string]int64{}, map[string]int64{}
			_ = liveGroup(fs, acked, sent)
			if powerCut {
				fs.WriteBack(random.Uint64())
				fs = fs.Crash(random.Uint64())
			} else {
				fs = fs.Kill()
			}
			p, err := openPlane(fs)
			require.NoError(t, err, "operation %d", n)
			got := positions(p)
			where := fmt.Sprintf("seed %d, operation %d of %d, power cut %v: %v, acknowledged %v, sent %v", seed, n, total, powerCut, got, acked, sent)
			least := acked["lazy"]
			if powerCut {
				least = acked["strict"] // the commit of both waited for the disk
			}
			require.GreaterOrEqual(t, got["strict"], acked["strict"], where)
			require.GreaterOrEqual(t, got["lazy"], least, where)
			require.LessOrEqual(t, got["lazy"], sent["lazy"], where)
			if whole := got["lazy"]; whole%3 == 0 && whole > 0 {
				whole--
				require.Equal(t, whole, got["strict"], where)
			} else {
				require.Equal(t, whole, got["strict"], where)
			}
			p.Group("g", func(g *group.Group) {
				require.True(t, g == nil || len(g.Members) == 0, where)
			})
			require.NoError(t, p.Close())
		}
	}
}
