package stream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/stream/internal/engine"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// The headers of a dead letter, behind those the record had. Numbers are decimal. The
// timestamp of the letter itself is when it was written, so that retention goes by that.
const (
	HeaderJob       = "thalweg.job"       // the job's name
	HeaderStep      = "thalweg.step"      // the step's name
	HeaderCause     = "thalweg.cause"     // text of the error, or "panic: " and the value
	HeaderTime      = "thalweg.time"      // event time of the record, ms since the epoch
	HeaderTopic     = "thalweg.topic"     // where the record came from; missing where it is the result of several
	HeaderPartition = "thalweg.partition" // the same
	HeaderOffset    = "thalweg.offset"    // the same
	HeaderTimer     = "thalweg.timer"     // "event" or "wall": the call of Timer failed, and there is no value
)

const ownHeaders = "thalweg."

// letter is a record that a step could not handle.
type letter struct {
	meta       *engine.Meta
	key, value []byte // nil where absent
	step       string
	cause      error
	timer      string
}

// letterbox is a topic of dead letters in one task.
type letterbox struct {
	t    *engine.Task
	out  *engine.Output
	job  string
	head []topic.Header // scratch
}

// openLetters opens a topic of dead letters, once a task.
func (o *opening) openLetters(s *step, t topic.Topic[[]byte, []byte]) (*letterbox, error) {
	if l, ok := o.letters[t.Name()]; ok {
		return l, nil
	}
	out, err := o.task.OpenOutput(s.id, t.Name(), o.run.partitions(t.Name()))
	if err != nil {
		return nil, err
	}
	l := &letterbox{t: o.task, out: out, job: o.run.app.name}
	if o.letters == nil {
		o.letters = make(map[string]*letterbox)
	}
	o.letters[t.Name()] = l
	return l, nil
}

func (b *letterbox) write(l letter) {
	b.head = b.head[:0]
	for _, h := range l.meta.Headers() {
		if !strings.HasPrefix(h.Key, ownHeaders) { // of an earlier letter
			b.head = append(b.head, h)
		}
	}
	add := func(key, value string) { b.head = append(b.head, topic.Header{Key: key, Value: []byte(value)}) }
	add(HeaderJob, b.job)
	add(HeaderStep, l.step)
	add(HeaderCause, l.cause.Error())
	add(HeaderTime, strconv.FormatInt(l.meta.Time, 10))
	if l.timer != "" {
		add(HeaderTimer, l.timer)
	}
	if tp, ok := b.t.Origin(l.meta); ok {
		add(HeaderTopic, tp.Topic)
		add(HeaderPartition, strconv.Itoa(int(tp.Partition)))
		if l.meta.Offset >= 0 {
			add(HeaderOffset, strconv.FormatInt(l.meta.Offset, 10))
		}
	}
	p := 0
	if l.key == nil {
		p = b.out.Spread()
	} else {
		p = topic.Partition(l.key, b.out.Partitions())
	}
	b.out.Append(p, b.t.Now().UnixMilli(), l.key, l.value, b.head)
	clear(b.head)
}

// Replay gives the dead letters of a step back as records: key, value, event time and
// headers as the step got them. Merged in front of the step it has them handled after a fix:
//
//	orders := app.Stream(incoming).Merge(app.Replay[string, Order](dead, "price"))
//	orders.TryMap(price).As("price").OnError(stream.DeadLetter(dead)).To(priced)
//
// K and V are what the step gets. In front of an aggregation or of Process that is a
// value with its group's key: KeyBy, Merge, GroupByKey does what GroupBy does. The step of
// a source is called by the name As gives it; its letters are decoded as the source does.
//
// Letters are read once: those that are in the topic when the job starts and that no
// earlier run has read. A record that fails again is a new letter, for the next start.
// Letters of other steps are passed over, and so are those of timers, which are counted in
// TaskStatus.NoValue. What has failed comes back with its old event time, and so is late
// for windows that have closed.
func (app *Topology) Replay[K, V any](dead topic.Topic[[]byte, []byte], step string) Stream[K, V] {
	n := declareReplay[K, V](app, dead)
	key, err := app.codecs.Of[K]()
	if err != nil {
		n.step.fault(fmt.Sprintf("no codec for the key: %v", err))
	}
	value, err := app.codecs.Of[V]()
	if err != nil {
		n.step.fault(fmt.Sprintf("no codec for the value: %v", err))
	}
	openReplay(n, func() string { return step }, func() (decoder[K, V], error) {
		for _, other := range app.steps {
			if f, ok := other.decoder().(decoder[K, V]); ok && other.label() == step {
				return f, nil // what a source could not decode
			}
		}
		return decodeBoth(key, value), nil
	})
	return Stream[K, V]{n}
}

// declareReplay declares a source of dead letters.
func declareReplay[K, V any](app *Topology, dead topic.Topic[[]byte, []byte]) *node[K, V] {
	n := &node[K, V]{step: app.declare("replay")}
	s := n.step
	s.source = &source{topic: dead.Name(), spec: dead.Spec(), committed: true, replay: true}
	s.clock = &clockSettings{disorder: -1}
	guards[[]byte, []byte](s)
	if err := dead.Err(); err != nil {
		s.fault(err.Error())
	}
	return n
}

// openReplay says how a source of dead letters is opened: it makes records, with the decoder, of those of the
// step that is called of.
func openReplay[K, V any](n *node[K, V], of func() string, decoder func() (decoder[K, V], error)) {
	s, app := n.step, n.step.app
	s.source.open = func(o *opening, at sourceStart) {
		decode, err := decoder()
		if err != nil {
			o.fail(err)
			return
		}
		r := &replaying[K, V]{t: o.task, step: s, of: of(), decode: decode, made: s.policyOf != nil, guard: openGuard[[]byte, []byte](o, s), down: n.open(o)}
		if r.guard != nil {
			r.guard.calls.name = r.of // a letter that cannot be decoded stays one of its step
		}
		r.attempt = func() (err error) {
			r.k, r.v, err = r.decode(r.key, r.value)
			return err
		}
		clock, err := s.clock.open(app)
		if err != nil {
			o.fail(err)
			return
		}
		engine.OpenSource(o.task, engine.SourceOptions[[]byte, []byte]{
			Partition: at.partition, Reader: at.reader, Start: at.start, Stop: at.stop,
			Key: codec.Bytes, Value: codec.Bytes, Clock: clock, IdleAfter: app.idleAfter,
			Step: s.id, Name: s.clock.name,
		}, port[[]byte, []byte]{Push: r.push, Watermark: r.down.Watermark, Idle: r.down.Idle})
	}
}

// decoder decodes key and value of a record.
type decoder[K, V any] func(key, value []byte) (K, V, error)

// decodeBoth is the decoder made of two codecs; nil is absent.
func decodeBoth[K, V any](keys codec.Codec[K], values codec.Codec[V]) decoder[K, V] {
	return func(key, value []byte) (k K, v V, err error) {
		if key != nil {
			if k, err = keys.Decode(key); err != nil {
				return k, v, fmt.Errorf("decode key: %w", err)
			}
		}
		if value != nil {
			if v, err = values.Decode(value); err != nil {
				return k, v, fmt.Errorf("decode value: %w", err)
			}
		}
		return k, v, nil
	}
}

// decoder is how the step, a source, decodes its records; nil where it is none.
func (s *step) decoder() any {
	if s.source == nil {
		return nil
	}
	return s.source.decode
}

// replaying makes records of dead letters, in one task.
type replaying[K, V any] struct {
	t      *engine.Task
	step   *step
	of     string // name of the step whose letters they are
	decode decoder[K, V]
	made   bool // what decode gives is a result: it has no headers, and is at no offset
	guard  *guard[[]byte, []byte]
	down   port[K, V]

	attempt    func() error
	key, value []byte // of the letter
	k          K      // of the record
	v          V
	headers    []byte
}

func (r *replaying[K, V]) push(letter *engine.Meta, key []byte, value *[]byte) {
	m := *letter
	var kept []topic.Header
	mine, timer := false, false
	from := topic.TopicPartition{}
	m.Offset = -1
	for _, h := range letter.Headers() {
		text := string(h.Value)
		number, _ := strconv.ParseInt(text, 10, 64)
		switch h.Key {
		case HeaderStep:
			mine = text == r.of
		case HeaderTimer:
			timer = true
		case HeaderTime:
			m.Time = number
		case HeaderTopic:
			from.Topic = text
		case HeaderPartition:
			from.Partition = topic.PartitionID(number)
		case HeaderOffset:
			m.Offset = number
		default:
			if !strings.HasPrefix(h.Key, ownHeaders) {
				kept = append(kept, h)
			}
		}
	}
	switch {
	case !mine:
		return
	case timer:
		r.t.Counters().NoValue++
		return
	}
	if m.Origin = 0; from.Topic != "" {
		m.Origin = r.t.OriginOf(from)
	}
	r.headers = r.headers[:0]
	if len(kept) > 0 {
		r.headers = topic.AppendHeaders(r.headers, kept)
	}
	m.SetHeaders(r.headers)
	r.key, r.value = nil, nil
	if !m.NoKey {
		r.key = key
	}
	if !m.Deleted {
		r.value = *value
	}
	r.t.Running = r.step.id
	if r.guard != nil {
		if !r.guard.do(&m, r.keyOf, value, r.attempt, nil) {
			return
		}
	} else if err := r.attempt(); err != nil {
		r.t.Fail(r.step.id, err)
		return
	}
	if r.made {
		m.Offset, m.Origin = -1, 0
		m.SetHeaders(nil)
	}
	r.down.Push(&m, r.k, &r.v)
}

func (r *replaying[K, V]) keyOf() ([]byte, error) { return r.key, nil }
