package stream_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// kvOps runs an operation of text on a store and returns what it says.
func kvOps(c *stream.Context[string, struct{}, string], kv state.KV[string, []string], op string) string {
	f := append(strings.Fields(op), "", "")
	switch f[0] {
	case "put":
		kv.Put(c, f[1], []string{f[2]})
	case "delete":
		kv.Delete(c, f[1])
	case "append":
		kv.Update(c, f[1], func(v []string, ok bool) []string {
			if !ok && v != nil {
				return []string{"not zero"}
			}
			return append(v, f[2])
		})
	case "get":
		v, ok := kv.Get(c, f[1])
		return fmt.Sprint(v, ok)
	case "range", "all", "sweep":
		seq := kv.All(c)
		if f[0] == "range" {
			seq = kv.Range(c, f[1], f[2])
		}
		var all []string
		for k, v := range seq {
			if f[0] == "sweep" {
				kv.Delete(c, k+"1") // comes later, and so comes no more
				kv.Put(c, k, append(v, "swept"))
			}
			all = append(all, fmt.Sprint(k, v))
		}
		return strings.Join(all, " ")
	}
	return ""
}

type kvModel map[string]kvEntry

type kvEntry struct {
	v    []string
	time int64
}

func (m kvModel) run(op string, now, ttl int64) string {
	for k, e := range m {
		if ttl > 0 && e.time+ttl <= now {
			delete(m, k)
		}
	}
	f := append(strings.Fields(op), "", "")
	keys := slices.Sorted(maps.Keys(m))
	switch f[0] {
	case "put":
		m[f[1]] = kvEntry{[]string{f[2]}, now}
	case "delete":
		delete(m, f[1])
	case "append":
		m[f[1]] = kvEntry{append(slices.Clone(m[f[1]].v), f[2]), now}
	case "get":
		e, ok := m[f[1]]
		return fmt.Sprint(e.v, ok)
	case "range", "all", "sweep":
		var all []string
		for _, k := range keys {
			e, ok := m[k]
			if !ok || f[0] == "range" && (k < f[1] || k >= f[2]) {
				continue
			}
			if f[0] == "sweep" {
				delete(m, k+"1")
				e = kvEntry{append(slices.Clone(e.v), "swept"), now}
				m[k] = e
				e.v = e.v[:len(e.v)-1]
			}
			all = append(all, fmt.Sprint(k, e.v))
		}
		return strings.Join(all, " ")
	}
	return ""
}

// A store does what a map does, whether its entries have a time to live or not, under every policy,
// across checkpoints and crashes.
func TestKVAgainstMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	plain := state.NewKV[string, []string]("entries")
	for name, kv := range map[string]state.KV[string, []string]{
		"plain": plain, "event time": plain.TTL(40 * ms), "wall clock": plain.WallTTL(40 * ms), "in memory": plain.NoChangelog(),
		"in memory, event time": plain.NoChangelog().TTL(40 * ms), "elsewhere": plain.On(state.Memory()),
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			out := topic.New[string, string]("out")
			app := stream.New("kv")
			if rng.IntN(2) == 0 {
				app.OnError(stream.Skip())
			}
			app.Stream(texts).GroupBy(func(string) string { return "all" }).Process(stream.ProcessFunc[string, string, struct{}, string](
				func(c *stream.Context[string, struct{}, string], op string) error {
					fails, op := strings.HasPrefix(op, "fail "), strings.TrimPrefix(op, "fail ")
					said := kvOps(c, kv, op)
					if fails {
						panic("as it was told")
					}
					c.Emit(said)
					return nil
				}), kv).As("ops").OnError(stream.Skip()).To(out)
			d := streamtest.New(t, app)
			model, want := kvModel{}, []string{}
			now := streamtest.Epoch
			ttl := kv.Spec().TTL.Milliseconds()
			for range 600 {
				if step := time.Duration(rng.IntN(6)) * ms; step > 0 {
					d.Advance(step)
					now = now.Add(step)
				}
				key := fmt.Sprint("k", rng.IntN(3)*rng.IntN(8))
				op := []string{"put ", "put ", "append ", "append ", "delete ", "get ", "get ", "range ", "all ", "sweep "}[rng.IntN(10)] + key
				switch {
				case strings.HasPrefix(op, "range"):
					op += fmt.Sprint(" k", rng.IntN(10))
				default:
					op += fmt.Sprint(" v", rng.IntN(100))
				}
				if rng.IntN(5) == 0 {
					d.Input(texts).Send("x", "fail "+op)
				}
				d.Input(texts).Send("x", op)
				want = append(want, model.run(op, now.UnixMilli(), ttl))
				if kv.Spec().Wall {
					d.Process() // before the clock goes on
				}
				switch rng.IntN(20) {
				case 0:
					d.Checkpoint()
				case 1:
					if kv.Spec().Wall || kv.Spec().NoChangelog {
						d.Checkpoint() // what is done again would find another time, or nothing
					}
					d.Crash()
					if kv.Spec().NoChangelog {
						clear(model)
					}
				}
			}
			require.Equal(t, want, values(d.Output(out).Records()))
			if ttl > 0 { // what nobody asks for goes too
				d.Advance(time.Second)
				d.Watermark(d.Now())
				d.Checkpoint()
				d.Checkpoint()
				var bytes int64
				for _, task := range d.Status().Tasks {
					bytes += task.StateSize
				}
				t.Logf("%d bytes of state", bytes)
			}
		})
	}
}

// A step may use several stores, and another step stores of the same name.
func TestSeveralStores(t *testing.T) {
	out := topic.New[string, string]("out")
	a, b := state.NewKV[string, int]("a"), state.NewKV[int, string]("b")
	app := stream.New("stores")
	count := func(c *stream.Context[string, struct{}, string], v string) error {
		a.Update(c, v, func(n int, _ bool) int { return n + 1 })
		n, _ := a.Get(c, v)
		b.Put(c, n, v)
		last, _ := b.Get(c, n)
		c.Emit(fmt.Sprint(n, last))
		return nil
	}
	type f = stream.ProcessFunc[string, string, struct{}, string]
	first := app.Stream(texts).GroupByKey().Process(f(count), a, b).As("first")
	first.Merge(app.Stream(texts).GroupBy(strings.ToUpper).Process(f(count), b, a).As("second")).To(out)
	d := streamtest.New(t, app)
	for range 2 {
		d.Input(texts).Send("k", "v")
		d.Checkpoint()
		d.Crash()
	}
	require.ElementsMatch(t, []string{"1v", "2v", "1v", "2v"}, values(d.Output(out).Records()))
	require.Contains(t, app.String(), `process "first"`)
}
