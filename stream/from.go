package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
)

// Source is an input from outside of the log: a file, a database, another system.
type Source[K, V any] interface {
	// Read yields events, those behind after, which is the Position of an event that an
	// earlier run has; nil is the beginning. It returns when there are no more, or when ctx
	// ends. An error that it yields ends the job. It is called once in a run, in a goroutine of
	// its own.
	Read(ctx context.Context, after []byte) iter.Seq2[Event[K, V], error]
}

// Event is a record that comes from outside of the log.
type Event[K, V any] struct {
	Key   K
	Value V

	NoKey   bool // there is no key
	Deleted bool // there is no value: what the key had is deleted; then there is a key

	Time    time.Time // event time, to the millisecond; the zero Time is that of the node's clock
	Headers []topic.Header

	// Position tells where to go on behind the event. Nil is that of the event before.
	Position []byte

	// Durable, where it is not nil, is called when the event is in the log, as durable as the job's
	// strictest topic asks. Where it was not called before the run ended, the event may be in
	// the log all the same. It must be quick.
	Durable func()
}

// SourceFunc is a Source that is a function.
type SourceFunc[K, V any] func(ctx context.Context, after []byte) iter.Seq2[Event[K, V], error]

// Read calls f.
func (f SourceFunc[K, V]) Read(ctx context.Context, after []byte) iter.Seq2[Event[K, V], error] {
	return f(ctx, after)
}

// Channel is a Source of what is sent on a channel, until it is closed. What was received and not
// yet written when the process dies is lost, since a channel cannot be asked again: a program
// that can send again waits for Durable. A run that stops takes nothing from the channel that it
// does not write.
func Channel[K, V any](events <-chan Event[K, V]) Source[K, V] { return channel[K, V](events) }

type channel[K, V any] <-chan Event[K, V]

func (c channel[K, V]) Read(ctx context.Context, _ []byte) iter.Seq2[Event[K, V], error] {
	return func(yield func(Event[K, V], error) bool) {
		for {
			select {
			case e, ok := <-c:
				if !ok || !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// From reads a source outside of the log. Its events go through an internal topic of one partition,
// each batch together with the position behind it, so they are read from the source until they
// are there, and by the job exactly once: after a crash, or in a later run, the source goes on
// behind the last that is in the log. A source that yields the same events behind the same position
// so loses and repeats none. The topic is as durable as the strictest that the job reads
// or writes: a source is asked again for what a power cut took.
//
// The name, of letters, digits, '.', '_' and '-', owns positions and topic: it must stay. Keys
// and values have the codecs of topics, as Topology.Use has them. Watermarks are those of a topic.
//
// When a source ends, a bounded run (StopAt, wherever that is) has read all of it; another
// run has nothing more from it, as from a topic that nobody writes. A source that is far
// ahead of the job waits. What is committed is deleted from the topic, in large steps.
//
// A streamtest.Driver takes what is in a channel by then, and reads other sources to
// their end.
func (app *Topology) From[K, V any](name string, src Source[K, V]) Stream[K, V] {
	n := &node[K, V]{step: app.declare("from")}
	s := n.step
	s.name, s.named = name, true
	if src == nil {
		s.fault("from needs a Source, not nil")
	}
	keys, values, err := internalCodecs[K, V](app)
	if err != nil {
		s.fault(err.Error())
	}
	s.clock = &clockSettings{disorder: -1}
	guards[[]byte, []byte](s)
	s.source = &source{topic: internalTopic(app.name, name, "source"), committed: true}
	s.source.decode = decodeBoth(keys, values)
	s.source.feed = func(r *run, p *topic.LogPartition) (*engine.Feed, error) {
		c := codecsOf[K, V](app)
		return engine.NewFeed(engine.FeedOptions{Partition: p, Step: s.id,
			Source: &feeding[K, V]{src: src, codecs: c, now: r.env.Now, stepped: r.env.Manual, most: p.MaxBatchBytes()}})
	}
	s.source.open = func(o *opening, at sourceStart) {
		clock, err := s.clock.open(app)
		if err != nil {
			o.fail(err)
			return
		}
		c := codecsOf[K, V](app)
		options := engine.SourceOptions[K, V]{Guard: guardSource(openGuard[[]byte, []byte](o, s)),
			Partition: at.partition, Reader: at.reader, Start: at.start, Stop: at.stop, Feed: o.run.feeds[s.source], Ends: app.stopAt != nil,
			Value: c.values, Clock: clock, Says: saidBy[V](s.clock), IdleAfter: s.clock.idleAfter(app),
			Future: s.clock.guard(), Align: s.clock.alignment(), Step: s.id, Name: s.clock.name,
		}
		if s.keyIsRead() {
			options.Key = c.keys
		}
		engine.OpenSource(o.task, options, n.open(o))
	}
	return Stream[K, V]{n}
}

// fedRecords is how many events go into a batch at the most, and fedBytes at what size it is full.
const (
	fedRecords = 1000
	fedBytes   = 256 << 10
)

// feeding is a Source on its way into the log.
type feeding[K, V any] struct {
	src     Source[K, V]
	codecs  codecPair[K, V]
	now     func() time.Time
	stepped bool
	most    int // bytes of a batch
	after   []byte
	held    *Event[K, V] // taken, and to be in the next batch

	key, value []byte // scratch

	// With a goroutine:
	events chan pulled[K, V] // closed when the source has returned
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Stepped:
	next func() (Event[K, V], error, bool)
	stop func()
}

type pulled[K, V any] struct {
	event Event[K, V]
	err   error
}

func (f *feeding[K, V]) Open(after []byte) { f.after = after }

func (f *feeding[K, V]) Holds() bool { return f.held != nil }

// Close ends what runs. The source must have returned for that.
func (f *feeding[K, V]) Close() {
	if f.cancel != nil {
		f.cancel()
		f.wg.Wait()
	}
	if f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// start starts the goroutine that reads the source.
func (f *feeding[K, V]) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.events = make(chan pulled[K, V])
	f.wg.Go(func() { // ends when the source returns; Close waits for it
		defer close(f.events)
		send := func(p pulled[K, V]) bool {
			select {
			case f.events <- p:
				return true
			case <-ctx.Done():
				return false
			}
		}
		err := safely(func() error {
			for e, err := range f.src.Read(ctx, f.after) {
				if !send(pulled[K, V]{e, err}) || err != nil {
					break
				}
			}
			return nil
		})
		if err != nil {
			send(pulled[K, V]{err: err})
		}
	})
}

// Fill takes what is there.
func (f *feeding[K, V]) Fill(ctx context.Context, b *topic.BatchBuilder) (filled engine.Filled, err error) {
	for filled.Records < fedRecords && (filled.Records == 0 || b.Size() < min(fedBytes, f.most)) {
		e, ok, ended, err := f.pull(ctx, filled.Records == 0)
		if err != nil {
			return filled, err
		}
		if filled.Ended = ended; ended || !ok {
			break
		}
		if added, err := f.add(b, e, &filled); err != nil {
			return filled, err
		} else if !added {
			f.held = &e
			break
		}
	}
	filled.After = f.after
	return filled, nil
}

// pull takes the next event, if one is there or may be waited for.
func (f *feeding[K, V]) pull(ctx context.Context, wait bool) (e Event[K, V], ok, ended bool, err error) {
	if f.held != nil {
		e, f.held = *f.held, nil
		return e, true, false, nil
	}
	if c, isChannel := f.src.(channel[K, V]); isChannel {
		return f.receive(ctx, c, wait && !f.stepped)
	}
	if f.stepped {
		return f.pullStepped(ctx)
	}
	if f.events == nil {
		f.start(ctx)
	}
	var p pulled[K, V]
	if wait {
		select {
		case p, ok = <-f.events:
		case <-ctx.Done():
			return e, false, false, ctx.Err()
		}
	} else {
		select {
		case p, ok = <-f.events:
		default:
			return e, false, false, nil
		}
	}
	if !ok {
		return e, false, ctx.Err() == nil, nil
	}
	return p.event, p.err == nil, false, p.err
}

// receive is pull from a channel, without a goroutine between: what is taken is written.
func (f *feeding[K, V]) receive(ctx context.Context, c channel[K, V], wait bool) (e Event[K, V], ok, ended bool, err error) {
	if !wait {
		select {
		case e, ok = <-c:
			return e, ok, !ok, nil
		default:
			return e, false, false, nil
		}
	}
	select {
	case e, ok = <-c:
		return e, ok, !ok, nil
	case <-ctx.Done():
		return e, false, false, ctx.Err()
	}
}

// pullStepped is pull from a source that does not wait, without a goroutine.
func (f *feeding[K, V]) pullStepped(ctx context.Context) (e Event[K, V], ok, ended bool, err error) {
	err = safely(func() error {
		if f.next == nil {
			f.next, f.stop = iter.Pull2(f.src.Read(ctx, f.after))
		}
		var failed error
		e, failed, ok = f.next()
		return failed
	})
	return e, ok && err == nil, !ok && err == nil, err
}

var errNothing = errors.New("an event without key and value says nothing")

// add encodes an event into a batch, unless that is too full for it.
func (f *feeding[K, V]) add(b *topic.BatchBuilder, e Event[K, V], filled *engine.Filled) (added bool, err error) {
	if e.NoKey && e.Deleted {
		return false, errNothing
	}
	var key, value []byte
	if !e.NoKey {
		if f.key, err = f.codecs.keys.Append(append(f.key[:0], 0)[:0], e.Key); err != nil {
			return false, fmt.Errorf("encode key: %w", err)
		}
		key = f.key
	}
	if !e.Deleted {
		if f.value, err = f.codecs.values.Append(append(f.value[:0], 0)[:0], e.Value); err != nil {
			return false, fmt.Errorf("encode value: %w", err)
		}
		value = f.value
	}
	at := e.Time
	if at.IsZero() {
		at = f.now()
	}
	const mark = 128 // bytes of the mark besides the position
	if filled.Records > 0 && b.SizeWith(at.UnixMilli(), key, value, e.Headers)+int64(len(f.after)+len(e.Position)+mark) > int64(f.most) {
		return false, nil
	}
	b.Add(at.UnixMilli(), key, value, e.Headers)
	filled.Records++
	filled.Time = at.UnixMilli()
	if e.Position != nil {
		f.after = append([]byte(nil), e.Position...)
	}
	if e.Durable != nil {
		filled.Durable = append(filled.Durable, e.Durable)
	}
	return true, nil
}
