package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/topic"
)

// ErrorPolicy says what becomes of a record for which a function of the program
// returns an error or panics. Topology.OnError sets that of all steps, OnError of a
// stream or table that of one. The zero value is Fail.
//
// A function that has failed has had no effect: what it emitted, sent and changed in the
// state of the step during the failed call is dropped, under every policy.
type ErrorPolicy struct {
	retries      int
	first, limit time.Duration
	verdict      verdict
	letters      *topic.Topic[[]byte, []byte] // for DeadLetter
	fault        string
}

// verdict is what becomes of the record in the end.
type verdict uint8

const (
	verdictFail verdict = iota
	verdictSkip
	verdictLetter
)

// Fail ends the job with a Failure. Nothing of the record counts, and the next run
// meets it again.
func Fail() ErrorPolicy { return ErrorPolicy{} }

// Skip drops the record for the step, and counts it in TaskStatus.Skipped. The first of a
// task is logged.
func Skip() ErrorPolicy { return ErrorPolicy{verdict: verdictSkip} }

// DeadLetter writes the record to a topic and goes on with the next: key and value as
// the step got them, in the default codecs of topics, or in those of the source where a
// source could not decode them; its headers; and further ones that tell what
// happened, HeaderCause and the others. Like all output it is committed with the
// checkpoint, once. The job creates the topic where it does not exist.
//
// Topology.Replay brings dead letters back. That of a join is a Pair.
func DeadLetter(t topic.Topic[[]byte, []byte]) ErrorPolicy {
	return ErrorPolicy{verdict: verdictLetter, letters: &t}
}

// Default waits of Retry; see Backoff.
const (
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 10 * time.Second
)

// Retry calls the function up to n times more, with growing waits between, before then
// decides. The task waits with it, and so does all that depends on the task; where
// that is long MapAsync suits better. When the job ends while a record waits, the
// record is met again by the next run.
func Retry(n int, then ErrorPolicy) ErrorPolicy {
	switch {
	case n < 1:
		then.fault = fmt.Sprintf("Retry(%d): give the number of further calls, 1 or more", n)
	case then.retries > 0:
		then.fault = "Retry of a Retry: say what becomes of the record in the end, Fail, Skip or DeadLetter"
	}
	then.retries, then.first, then.limit = n, DefaultBackoff, DefaultMaxBackoff
	return then
}

// Backoff sets the waits of a Retry: first before the second call, twice as long before
// each further one, and never longer than limit.
func (p ErrorPolicy) Backoff(first, limit time.Duration) ErrorPolicy {
	switch {
	case p.retries == 0:
		p.fault = "Backoff sets the waits of Retry: call it on one"
	case first < 0 || limit < first:
		p.fault = fmt.Sprintf("Backoff(%v, %v): give two waits, the second not below the first", first, limit)
	}
	p.first, p.limit = first, limit
	return p
}

// fails tells whether the policy is that of the zero value: a failure is the end of the attempt, and
// nothing has to be taken back.
func (p ErrorPolicy) fails() bool { return p.verdict == verdictFail && p.retries == 0 }

// wait is how long to wait before call n+1, the first call being 0.
func (p ErrorPolicy) wait(n int) time.Duration {
	d := p.first
	for range n {
		if d >= p.limit/2 {
			return p.limit
		}
		d *= 2
	}
	return min(d, p.limit)
}

// OnError sets what becomes of records that a function of the program cannot handle, in
// all steps that do not say otherwise. The default is Fail.
func (app *Topology) OnError(p ErrorPolicy) *Topology {
	app.onError = p
	if p.fault != "" {
		app.fault("on error", p.fault)
	}
	return app
}

// OnError sets what becomes of records that the step that made the stream cannot
// handle: a source that it cannot decode, others for which the function fails. For a join of streams
// see Table.OnError; the records themselves are kept for other pairs.
func (s Stream[K, V]) OnError(p ErrorPolicy) Stream[K, V] {
	s.n.step.setPolicy(p)
	return s
}

// OnError sets what becomes of records that the function of the aggregation cannot
// handle. The aggregate is then as it was before the record. Of a Filter or Map a row for which the function
// fails is none, as if it were filtered out, of a join a pair; both are counted when they come to be.
//
// The dead letter of a join of tables or of streams is a Pair. Aggregations of the groups of a table cannot pass
// over a row, which would be taken out later all the same: they take Fail, and Retry before.
func (t Table[K, V]) OnError(p ErrorPolicy) Table[K, V] {
	t.n.step.setPolicy(p)
	return t
}

// OnError sets what becomes of records for which GroupBy's function fails.
func (g Grouped[K, V]) OnError(p ErrorPolicy) Grouped[K, V] {
	g.g.step.setPolicy(p)
	return g
}

func (s *step) setPolicy(p ErrorPolicy) {
	s.onError = &p
	if p.fault != "" {
		s.fault(p.fault)
	}
}

// policy is the one that holds for the step: that of the topology as far as it is possible.
func (s *step) policy() ErrorPolicy {
	switch {
	case s.policyOf != nil:
		return s.policyOf.policy()
	case !s.guarded:
		return Fail()
	case s.onError != nil:
		return *s.onError
	}
	p := s.app.onError
	if s.refuses(p) != "" {
		p.verdict, p.letters = verdictFail, nil
	}
	return p
}

// refuses tells why a policy cannot hold for the step; empty where it can.
func (s *step) refuses(p ErrorPolicy) string {
	if p.verdict != verdictFail {
		return s.noSkip
	}
	return ""
}

// checkPolicy adds what is wrong with the policy that holds for the step.
func (s *step) checkPolicy(add func(problem string)) {
	if s.onError != nil && !s.guarded {
		add(fmt.Sprintf("OnError does not apply to %s: it calls no function of the program, or one whose failure always ends the job", s.kind))
	}
	if s.onError != nil && s.guarded {
		if problem := s.refuses(*s.onError); problem != "" {
			add("OnError: " + problem)
			return
		}
	}
	if p := s.policy(); p.letters != nil && s.policyOf == nil {
		if err := p.letters.Err(); err != nil {
			add(err.Error())
		}
		if err := s.letterCodecs(); err != nil {
			add(fmt.Sprintf("no codec for dead letters: %v", err))
		}
	}
}

// deadLetters are the topics of all dead letters.
func (app *Topology) deadLetters() (topics []topic.Topic[[]byte, []byte]) {
	seen := make(map[string]bool)
	for _, s := range app.steps {
		if t := s.policy().letters; t != nil && !seen[t.Name()] {
			seen[t.Name()] = true
			topics = append(topics, *t)
		}
	}
	return topics
}
