package stream_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// counting counts the records of a key, and at the end of time tells of them, and of all rules.
type counting struct {
	rules stream.Broadcast[string, string]
}

func (c counting) Process(ctx *stream.Context[string, int, string], v string) error {
	*ctx.State()++
	ctx.Emit(v)
	ctx.SetTimer(at(1_000_000))
	return nil
}

func (c counting) Timer(ctx *stream.Context[string, int, string], _ stream.Timer) error {
	rules := map[string]string{}
	maps.Insert(rules, c.rules.All(ctx))
	ctx.Emit(fmt.Sprint("end ", *ctx.State(), rules))
	return nil
}

// A stream joined with a table as of its times, with a global one, and held against broadcast rules
// gives what it would have given, wherever it is stopped, with a power cut too.
func TestLookupsStoppedAtFileOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs")
	}
	stopEverywhere(t, lookupsJob)
}

// The same where tasks run at the same time, and are killed.
func TestLookupsKilledAtRandomMoments(t *testing.T) { killAtRandom(t, lookupsJob) }

func lookupsJob(sync log.Sync) bounded {
	in, rates := topic.New[string, string]("in").Partitions(2).Sync(sync), topic.New[string, string]("rates").Partitions(2).Sync(sync)
	names, changes := topic.New[string, string]("names").Sync(sync), topic.New[string, string]("rules").Partitions(2).Sync(sync)
	out := topic.New[string, string]("out").Sync(sync)
	var want []string
	return bounded{
		steps: 2,
		topology: func() *stream.Topology {
			app := stream.New("lookups").Checkpoint(checkpoint.Every(time.Second)).StopAt(topic.End())
			rules := app.Stream(changes).Broadcast("rules")
			app.Stream(in).LeftJoinTable(app.Table(rates).As("rates", stream.History(time.Hour)), leftOr).
				LeftJoinGlobal(app.GlobalTable(names), func(v string) string { return v[:2] }, leftOr).
				GroupByKey().Process(counting{rules}, rules).As("counted").To(out)
			return app
		},
		fill: func(t *testing.T, n testNode) {
			p := func(t1 topic.Topic[string, string]) *topic.Producer[string, string] {
				made, err := topic.NewProducer(t.Context(), n, t1, topic.ProducerOptions{})
				require.NoError(t, err)
				return made
			}
			records, rate, name, rule := p(in), p(rates), p(names), p(changes)
			put := func(p *topic.Producer[string, string], k, v string, when int64) {
				_, _, err := p.SendRecord(t.Context(), topic.Record[string, string]{Key: k, Value: v, Time: at(when)})
				require.NoError(t, err)
			}
			counts, called, rules := map[string]int{}, map[string]string{}, map[string]string{}
			for i := range int64(10) {
				called[fmt.Sprint("s", i)] = fmt.Sprint("n", i)
				put(name, fmt.Sprint("s", i), fmt.Sprint("n", i), 0)
				rules[fmt.Sprint("r", i%7)] = fmt.Sprint(i)
				put(rule, fmt.Sprint("r", i%7), fmt.Sprint(i), i*20)
			}
			for i := range int64(1500) {
				k := fmt.Sprint("k", i%5)
				put(rate, k, fmt.Sprint("/", i), 2*i)
				back := i * 7 % 11 // in steps of the key's own rates
				r, ok := i-5*back, i >= 5*back
				v := fmt.Sprintf("s%d.%d", i%12%10, i)
				put(records, k, v, 2*r+3)
				counts[k]++
				made := leftOr(v, fmt.Sprint("/", r), ok)
				want = append(want, k+"="+leftOr(made, called[v[:2]], true))
			}
			for k, n := range counts {
				want = append(want, k+"="+fmt.Sprint("end ", n, rules))
			}
			for _, p := range []*topic.Producer[string, string]{records, rate, name, rule} {
				require.NoError(t, p.Close())
			}
		},
		check: func(t *testing.T, n testNode) {
			var got []string
			for r, err := range topic.ReadToEnd(t.Context(), n, out, topic.Start()) {
				require.NoError(t, err)
				got = append(got, r.Key+"="+r.Value)
			}
			require.ElementsMatch(t, want, got)
		},
	}
}
