package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// changed renders records as "k=v @time", a tombstone as "k=nil @time".
func changed[K, V any](records []topic.Record[K, V]) []string {
	var all []string
	for _, r := range records {
		value := fmt.Sprint(r.Value)
		if r.Deleted {
			value = "nil"
		}
		all = append(all, fmt.Sprintf("%v=%s @%d", r.Key, value, r.Time.UnixMilli()))
	}
	return all
}

// tableIn is what the topic of a table says of it.
func tableIn[K comparable, V any](records []topic.Record[K, V]) map[K]V {
	rows := map[K]V{}
	for _, r := range records {
		if r.Deleted {
			delete(rows, r.Key)
		} else {
			rows[r.Key] = r.Value
		}
	}
	return rows
}

// steps sends one change after the other and asks for what each emitted.
type steps[K, V any] struct {
	t    *testing.T
	d    *streamtest.Driver
	in   topic.Topic[K, V]
	seen map[string]int
}

func newSteps[K, V any](t *testing.T, d *streamtest.Driver, in topic.Topic[K, V]) *steps[K, V] {
	return &steps[K, V]{t, d, in, map[string]int{}}
}

func (s *steps[K, V]) put(time int64, k K, v V) { s.d.Input(s.in).SendAt(at(time), k, v) }
func (s *steps[K, V]) delete(time int64, k K) {
	s.d.Input(s.in).SendRecord(topic.Record[K, V]{Key: k, Deleted: true, Time: at(time)})
}

// gained are the records that out has and had not at the call before.
func (s *steps[K, V]) gained[K2, V2 any](out topic.Topic[K2, V2]) []string {
	s.t.Helper()
	all := changed(s.d.Output(out).Records())
	gained := all[s.seen[out.Name()]:]
	s.seen[out.Name()] = len(all)
	return gained
}

func (s *steps[K, V]) expect[K2, V2 any](out topic.Topic[K2, V2], want ...string) {
	s.t.Helper()
	require.Equal(s.t, want, append([]string(nil), s.gained(out)...))
}

// A table of a topic is the newest record of each key in the order of the partition; it
// survives a crash; records without a key are counted.
func TestTableOfATopic(t *testing.T) {
	in, out := topic.New[string, int]("users"), topic.New[string, int]("rows")
	app := stream.New("table")
	app.Table(in).To(out)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(10, "a", 1)
	s.put(20, "b", 2)
	s.put(15, "a", 3)
	s.put(5, "b", 4)
	s.expect(out, "a=3 @15", "b=4 @5")
	d.Crash()
	s.delete(30, "a")
	s.delete(31, "c")
	s.expect(out, "a=nil @30")
	s.delete(32, "a")
	s.put(33, "d", 1)
	s.delete(34, "d")
	d.Input(in).SendRecord(topic.Record[string, int]{NoKey: true, Value: 7, Time: at(40)})
	s.expect(out)
	require.EqualValues(t, 1, d.Status().Tasks[0].NoKey)
	s.put(50, "a", 9)
	s.expect(out, "a=9 @50")
}

// Filter and Map of a table follow its rows: one that no longer passes is deleted, once.
func TestTableFilterAndMap(t *testing.T) {
	in := topic.New[string, int]("in")
	even, text, changes := topic.New[string, int]("even"), topic.New[string, string]("text"), topic.New[string, stream.Change[string]]("changes")
	app := stream.New("derived")
	table := app.Table(in).Emit(window.OnUpdate)
	kept := table.Filter(func(v int) bool { return v%2 == 0 })
	kept.To(even)
	named := kept.MapKV(func(k string, v int) string { return fmt.Sprint(k, v) }).FilterKV(func(k, _ string) bool { return k != "x" })
	named.To(text)
	named.Changes().To(changes)
	d := streamtest.New(t, app)
	s := newSteps(t, d, in)
	s.put(1, "a", 1)
	s.put(2, "x", 2)
	s.put(3, "a", 2)
	s.put(4, "a", 4)
	s.put(5, "a", 5)
	s.put(6, "a", 7)
	s.delete(7, "a")
	s.delete(8, "x")
	s.expect(even, "x=2 @2", "a=2 @3", "a=4 @4", "a=nil @5", "x=nil @8")
	s.expect(text, "a=a2 @3", "a=a4 @4", "a=nil @5")
	s.expect(changes, "a={ a2 true false} @3", "a={a2 a4 false false} @4", "a={a4  false true} @5")
}

// A stream turned into a table moves to the task of its key, deletions too.
func TestToTableRepartitions(t *testing.T) {
	in, out := topic.New[int, string]("in").Partitions(3), topic.New[string, string]("out")
	app := stream.New("moves")
	app.Stream(in).KeyBy(func(v string) string { return v[:1] }).ToTable().Map(strings.ToUpper).Emit(window.OnUpdate).To(out)
	d := streamtest.New(t, app)
	for i := range 60 {
		d.Input(in).SendAt(at(int64(i)), i%20, fmt.Sprint(string(rune('a'+i%20/4)), i/20))
		if i%20 == 19 {
			d.Checkpoint() // between partitions there is no order
		}
	}
	require.Equal(t, map[string]string{"a": "A2", "b": "B2", "c": "C2", "d": "D2", "e": "E2"}, tableIn(d.Output(out).Records()))
	require.Contains(t, app.String(), "[shuffle]")
}
