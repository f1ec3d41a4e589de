package stream

import (
	"slices"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/window"
)

// Combine has records of a key folded into one by f before they are sent to the task that owns
// the key, where the groups are shuffled and one aggregation in windows that emits on close is all
// that reads them. A key with a large part of all records then takes a small part of
// what is sent. What comes out is the same:
//
//	totals := app.Stream(payments).GroupBy(Payment.Merchant).Combine(Payment.Plus).
//		Window(window.Tumbling(time.Minute)).Aggregate(Total.Add)
//
// f must go together with the aggregation: to add f(v, v2) gives what adding v and then v2
// gives, in any order. Only records that are in the same windows, none of which is closed, are
// folded. Where a step does something else with the records they come one by one and f is not called.
// A panic of f always ends the job.
//
// Count needs no Combine: records are counted before they are sent under the same conditions.
func (g Grouped[K, V]) Combine[_ lazily[V]](f func(V, V) V) Grouped[K, V] {
	requireFunc(g.g.step, f == nil)
	g.g.fold = f
	return g
}

// foldedIn is an aggregation in windows below a grouping.
type foldedIn struct {
	step   *step
	spec   window.Spec
	emit   window.Emit
	counts bool
}

// combine is how senders put records together; nil where they must not.
func (g *grouping[K, V]) combine() *engine.Combine[V] {
	if len(g.windows) != 1 || g.deletes || g.keyless || g.step.headersAreRead() {
		return nil
	}
	w := g.windows[0]
	if w.emit != window.OnClose || w.spec.IsProcessingTime() || !w.counts && g.fold == nil || !w.step.policy().fails() {
		return nil
	}
	// Whoever reads late records, too: behind a sender that was idle they are, whatever its watermark.
	if slices.ContainsFunc(g.step.outputs, func(out *step) bool { return out != w.step }) {
		return nil
	}
	c := &engine.Combine[V]{Pane: paneOf(w.spec), Closes: func(at int64) int64 {
		if at == window.Unknown {
			return at
		}
		return w.spec.ClosesAt(w.spec.OldestOpen(at))
	}}
	if g.fold != nil {
		c.Fold = func(into, v *V) { *into = g.fold(*into, *v) }
	}
	return c
}

// paneOf tells, for windows of the clock or the calendar, what times are in the same ones.
func paneOf(spec window.Spec) func(t int64) engine.Pane {
	return func(t int64) engine.Pane {
		first, last := spec.First(t), spec.Last(t)
		p := engine.Pane{Start: last, End: spec.End(first), ClosesAt: spec.ClosesAt(first)}
		if !spec.IsSingle() {
			p.Start = max(p.Start, spec.End(first-spec.EveryMs()))
			p.End = min(p.End, last+spec.EveryMs())
		}
		return p
	}
}
