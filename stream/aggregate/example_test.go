package aggregate_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/aggregate"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

func Example() {
	price := func(cents int) float64 { return float64(cents) / 100 }
	mean, spread, median := aggregate.Mean(price), aggregate.Variance(price), aggregate.Quantiles(price)
	var m aggregate.Average
	var s aggregate.Spread
	var q aggregate.Distribution
	for _, cents := range []int{100, 200, 300, 400, 500} {
		m, s, q = mean(m, cents), spread(s, cents), median(q, cents)
	}
	fmt.Printf("mean %.2f, deviation %.2f, median about %.1f\n", m.Value(), s.Deviation(), q.Quantile(0.5))
	// Output: mean 3.00, deviation 1.41, median about 3.0
}

func ExampleTop() {
	type page struct {
		Title string
		Views int
	}
	top := aggregate.Top(2, func(p page) string { return p.Title }, func(p page) int { return p.Views })
	var r aggregate.Ranking[string, int]
	for _, p := range []page{{"Go", 5}, {"Ada", 7}, {"C", 3}, {"B", 5}} {
		r = top(r, p)
	}
	for rank, p := range r.All() {
		fmt.Println(rank, p.Key, p.Score)
	}
	// Output:
	// 1 Ada 7
	// 2 B 5
}

// In a pipeline the aggregates are kept, and go on after a crash.
func TestInAPipeline(t *testing.T) {
	type order struct {
		Customer string
		Cents    int64
	}
	orders := topic.New[string, order]("orders").Partitions(2)
	mean, who := topic.New[string, float64]("mean"), topic.New[string, []string]("who")
	app := stream.New("shop")
	byShop := app.Stream(orders).GroupByKey()
	byShop.Aggregate(aggregate.Mean(func(o order) float64 { return float64(o.Cents) })).As("means").
		Map(aggregate.Average.Value).To(mean)
	byShop.Aggregate(aggregate.Distinct(func(o order) string { return o.Customer })).As("customers").
		Map(func(s aggregate.Set[string]) []string { return slices.SortedFunc(s.All(), cmp.Compare[string]) }).To(who)
	d := streamtest.New(t, app)
	in := d.Input(orders)
	in.Send("a", order{"ann", 100})
	in.Send("a", order{"bob", 300})
	in.Send("b", order{"ann", 7})
	d.Checkpoint()
	in.Send("a", order{"ann", 800})
	d.Process()
	d.Crash()
	v, _ := d.Output(mean).Latest("a")
	require.Equal(t, 400.0, v)
	v, _ = d.Output(mean).Latest("b")
	require.Equal(t, 7.0, v)
	customers, _ := d.Output(who).Latest("a")
	require.Equal(t, []string{"ann", "bob"}, customers)
}
