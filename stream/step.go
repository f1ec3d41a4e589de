package stream

import (
	"runtime"
	"strconv"
	"strings"
)

// step is an operator as it was declared: a vertex of the topology.
type step struct {
	id      int
	app     *Topology
	kind    string // the operator's name
	name    string // given by As, or derived by the topology when it is validated
	named   bool   // by As
	line    string // file:line of the declaration
	inputs  []*step
	outputs []*step

	source    *source        // set for a source
	global    *globalTopic   // set for a topic that every task reads as a whole
	looksUp   *globalTopic   // set for a step that looks rows up in such a topic
	sink      *sink          // set for a topic that is written
	deliver   *deliver       // set for a sink outside of the log
	group     cut            // set for a grouping
	clock     *clockSettings // set for what makes watermarks
	stores    []*storeDecl   // its state, each with a changelog
	used      []usedStore    // stores of the program's
	cells     any            // the codec of what it keeps of each key, where that can be read by itself
	table     bool           // gives a table, which may be looked at from outside
	needsKey  bool           // reads the key it is given
	changeKey bool           // gives another key to what follows
	parts     int            // of a grouping: how many tasks are below it; 0 is for the plan to say
	joint     bool           // needs the records of a key of all its inputs in one task
	unkeyed   bool           // its state is not by the key of its records: they may be in any task
	side      string         // tells the groupings in front of one joint step apart
	sides     []any          // of a step that knows late records: a join of streams, a deduplication
	ordered   bool           // of a grouping: the tasks below read what comes by event time
	first     []*step        // of a joint step: the inputs whose records go first at the same time
	partOf    *step          // of a step that an operator has besides: the one that is named after the operator

	// home, of a step that gives windows of keys, is the key that a window is where it is, both
	// encoded; else nil.
	home func(key []byte) ([]byte, error)

	needsHeaders bool // reads the headers it is given
	dropsHeaders bool // what it gives comes of several records, and has none

	guarded      bool         // calls functions of the program to which error policies apply
	onError      *ErrorPolicy // nil takes the topology's
	letterCodecs func() error // why the step's input cannot be written as a dead letter; set where guarded
	noSkip       string       // why nothing can be skipped; empty where it can
	again        any          // of a join of streams: makes results of its dead letters
	policyOf     *step        // of a step that an operator has besides: the one whose policy holds; else nil

	check  func() (problem string) // asked once the topology is complete; nil where there is nothing to ask
	faults []string
}

// cut is a grouping, where the topology may be cut into stages.
type cut interface {
	// mustShuffle tells whether records of one key may be in several tasks.
	mustShuffle() bool
	// shuffle makes it shuffle, whether it must or not.
	shuffle()
	// spreads tells whether what is below is in the task that the hash of its key says.
	spreads() bool
	// meet says that what is below meets records of other groupings, so that it must be
	// spread over the tasks as they are.
	meet()
	newExchange(senders, receivers int, inOrder bool) any
	openStage(o *opening, shard int)
}

func (s *step) fault(problem string) { s.faults = append(s.faults, problem) }

// checkToo asks check where what is asked already finds no problem.
func (s *step) checkToo(check func() (problem string)) {
	before := s.check
	s.check = func() string {
		if before != nil {
			if problem := before(); problem != "" {
				return problem
			}
		}
		return check()
	}
}

// label is what messages call the step.
func (s *step) label() string {
	if s.name != "" {
		return s.name
	}
	return s.kind
}

// mayEnd tells whether a step makes sense with nothing behind it: it writes, has an
// effect of its own, gives a table, or is one of two sides.
func (s *step) mayEnd() bool {
	switch s.kind {
	case "peek", "process", "side", "split yes", "split no", "route":
		return true
	}
	return s.sink != nil || s.deliver != nil || s.table || s.stateful()
}

// needsName tells whether something that lasts is called after the step.
func (s *step) needsName() bool { return s.stateful() || s.joint || s.deliver != nil }

// declare adds a step behind inputs.
func (app *Topology) declare(kind string, inputs ...*step) *step {
	s := &step{id: len(app.steps), app: app, kind: kind, line: callerLine(), inputs: inputs}
	app.steps = append(app.steps, s)
	for _, in := range inputs {
		in.outputs = append(in.outputs, s)
		if in.app != app {
			s.fault("joins streams of two topologies, " + strconv.Quote(in.app.name) + " and " + strconv.Quote(app.name) + "; build both on one")
		}
	}
	return s
}

// callerLine is the line outside this package that called the operator.
func callerLine() string {
	const here = "github.com/thalweg/thalweg/stream."
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, here) {
			file := f.File
			if i := strings.LastIndexByte(file, '/'); i >= 0 {
				if j := strings.LastIndexByte(file[:i], '/'); j >= 0 {
					file = file[j+1:]
				}
			}
			return file + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// node is a step together with the type of what it gives to those behind it.
type node[K, V any] struct {
	step  *step
	downs []func(o *opening) port[K, V]
}

// connect makes the step s, opened by open, read what n gives. A step that is
// reached in several ways is opened once a task.
func connect[K, V any](n *node[K, V], s *step, open func(o *opening) port[K, V]) {
	n.downs = append(n.downs, func(o *opening) port[K, V] {
		if p, ok := o.opened[s.id]; ok {
			return p.(port[K, V])
		}
		p := open(o)
		o.opened[s.id] = p
		return p
	})
}

// open opens all that reads what n gives.
func (n *node[K, V]) open(o *opening) port[K, V] {
	ports := make([]port[K, V], len(n.downs))
	for i, d := range n.downs {
		ports[i] = d(o)
	}
	return fanOut(ports)
}
