package stream

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Picture is a topology as it runs: its steps, in the stages it is cut into. It is a plain
// value; String, DOT and Mermaid draw it.
type Picture struct {
	Job    string
	Live   bool // Counts are of a job that was running
	Lag    int64
	Stages []PictureStage // one comes behind those that feed it
	Edges  []PictureEdge
}

// PictureStage is a stage, which runs as one task for each of its partitions or shards.
type PictureStage struct {
	Name  string
	Steps []PictureStep // in the order of their declaration
	Counts
}

// Counts are what the tasks of a stage have done since the run began.
type Counts struct {
	Tasks       int
	Records     int64     // read from topics or other stages
	Emitted     int64     // written to topics
	Late        int64     // dropped for being late
	Skipped     int64     // dropped for want of a key or value, or by a function that failed
	DeadLetters int64     // written as dead letters
	Delivered   int64     // handed to a sink outside of the log
	Watermark   time.Time // the least of the tasks; zero while one has none, and at the end of time
	Ended       bool      // event time of all tasks has come to its end
}

// PictureStep is a step. One that several stages have is in the first of them.
type PictureStep struct {
	ID      int // what edges call it
	Kind    string
	Name    string // given or derived; empty where nothing that lasts is called after the step
	Topic   string // that it reads or writes
	Line    string // file:line of its declaration
	State   bool   // it keeps state
	Shuffle bool   // records come to it from other tasks
}

// PictureEdge says that the step To reads what the step From gives.
type PictureEdge struct {
	From, To int
	Shuffle  bool // records move to other tasks
}

// Picture draws the topology. One with mistakes has a picture too.
func (app *Topology) Picture() Picture {
	app.deriveNames()
	p := Picture{Job: app.name}
	drawn := make(map[*step]bool)
	for _, st := range app.stages() {
		stage := PictureStage{Name: st.name}
		for _, s := range st.steps {
			if !drawn[s] {
				drawn[s] = true
				stage.Steps = append(stage.Steps, s.picture())
			}
		}
		slices.SortFunc(stage.Steps, func(a, b PictureStep) int { return cmp.Compare(a.ID, b.ID) })
		p.Stages = append(p.Stages, stage)
	}
	for _, s := range app.steps {
		for _, in := range s.inputs {
			p.Edges = append(p.Edges, PictureEdge{From: in.id, To: s.id, Shuffle: s.cutsStage()})
		}
	}
	return p
}

// cutsStage tells whether records come to the step from tasks of another stage.
func (s *step) cutsStage() bool { return s.deliver != nil || s.group != nil && s.group.mustShuffle() }

func (s *step) picture() PictureStep {
	p := PictureStep{ID: s.id, Kind: s.kind, Line: s.line, State: s.stateful(), Shuffle: s.cutsStage()}
	if s.named || s.needsName() {
		p.Name = s.name
	}
	switch {
	case s.source != nil:
		p.Topic = s.source.topic
	case s.looksUp != nil:
		p.Topic = s.looksUp.topic
	case s.sink != nil:
		p.Topic = s.sink.topic
	}
	return p
}

// Picture draws the job's topology with what each stage has done so far.
func (j *Job) Picture() Picture {
	p, status := j.app.Picture(), j.Status()
	p.Live, p.Lag = true, status.Lag
	for i := range p.Stages {
		st := &p.Stages[i]
		unknown := false
		st.Ended = true
		for _, t := range status.Tasks {
			if t.Stage != st.Name {
				continue
			}
			st.Tasks++
			st.Records += t.Records
			st.Emitted += t.Emitted
			st.Late += t.Late
			st.Skipped += t.Skipped + t.NoKey + t.NoValue
			st.DeadLetters += t.DeadLetters
			st.Delivered += t.Delivered
			if t.Ended {
				continue
			}
			st.Ended = false
			if unknown = unknown || t.Watermark.IsZero(); !unknown && (st.Watermark.IsZero() || t.Watermark.Before(st.Watermark)) {
				st.Watermark = t.Watermark
			}
		}
		if unknown {
			st.Watermark = time.Time{}
		}
		if j.run.delivers(st.Name) {
			st.Ended = false // has no event time
		}
	}
	return p
}

// delivers tells whether a stage feeds a sink outside of the log.
func (r *run) delivers(name string) bool {
	return slices.ContainsFunc(r.stages, func(st *stage) bool { return st.name == name && st.deliver() != nil })
}

// String draws the picture as text: below each stage its steps, each with those it reads.
func (p Picture) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s%s\n", p.Job, p.lag())
	for _, st := range p.Stages {
		fmt.Fprintf(&b, "\nstage %s%s\n", st.Name, p.counts(st, ": ", ", "))
		for _, s := range st.Steps {
			fmt.Fprintf(&b, "  #%d %s", s.ID, s.label())
			if from := p.from(s.ID); len(from) > 0 {
				fmt.Fprintf(&b, "  <- %s", strings.Join(from, " "))
			}
			fmt.Fprintf(&b, "  %s\n", s.Line)
		}
	}
	return b.String()
}

// from names the steps that a step reads.
func (p Picture) from(id int) (from []string) {
	for _, e := range p.Edges {
		if e.To == id {
			from = append(from, "#"+strconv.Itoa(e.From))
		}
	}
	return from
}

func (p Picture) lag() string {
	if !p.Live {
		return ""
	}
	return fmt.Sprintf(", %d behind", p.Lag)
}

// label is what a step is called in a picture.
func (s PictureStep) label() string {
	text := s.Kind
	if s.Topic != "" {
		text += " " + s.Topic
	}
	if s.Name != "" {
		text += " " + strconv.Quote(s.Name)
	}
	if s.State {
		text += " [state]"
	}
	if s.Shuffle {
		text += " [shuffle]"
	}
	return text
}

// counts tells what a stage has done, the first behind before and the others behind between;
// nothing where the picture is not of a job.
func (p Picture) counts(st PictureStage, before, between string) string {
	if !p.Live {
		return ""
	}
	texts := []string{plural(st.Tasks, "task"), fmt.Sprintf("%d read", st.Records)}
	for _, c := range []struct {
		n    int64
		text string
	}{{st.Emitted, "written"}, {st.Late, "late"}, {st.Skipped, "skipped"}, {st.DeadLetters, "dead letters"}, {st.Delivered, "delivered"}} {
		if c.n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	switch {
	case st.Ended:
		texts = append(texts, "ended")
	case !st.Watermark.IsZero():
		texts = append(texts, "watermark "+st.Watermark.Format(time.RFC3339Nano))
	}
	return before + strings.Join(texts, between)
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// DOT draws the picture for Graphviz: `dot -Tsvg`.
func (p Picture) DOT() string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  label=%s;\n  node [shape=box];\n", quote(p.Job), quote("job "+p.Job+p.lag()))
	for i, st := range p.Stages {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s;\n", i, quote(st.Name+p.counts(st, "\n", "\n")))
		for _, s := range st.Steps {
			shape := ""
			switch {
			case s.Topic != "":
				shape = ", shape=cds"
			case s.State:
				shape = ", shape=cylinder"
			}
			fmt.Fprintf(&b, "    s%d [label=%s%s];\n", s.ID, quote(s.label()), shape)
		}
		b.WriteString("  }\n")
	}
	for _, e := range p.Edges {
		style := ""
		if e.Shuffle {
			style = " [style=dashed]"
		}
		fmt.Fprintf(&b, "  s%d -> s%d%s;\n", e.From, e.To, style)
	}
	b.WriteString("}\n")
	return b.String()
}

// Mermaid draws the picture as a Mermaid flowchart, which code forges show in Markdown.
func (p Picture) Mermaid() string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer("&", "#amp;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", "<br/>").Replace(s) + `"`
	}
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i, st := range p.Stages {
		fmt.Fprintf(&b, "  subgraph g%d[%s]\n", i, quote(st.Name+p.counts(st, "\n", "\n")))
		for _, s := range st.Steps {
			open, shut := "[", "]"
			switch {
			case s.Topic != "":
				open, shut = "[/", "/]"
			case s.State:
				open, shut = "[(", ")]"
			}
			fmt.Fprintf(&b, "    s%d%s%s%s\n", s.ID, open, quote(s.label()), shut)
		}
		b.WriteString("  end\n")
	}
	for _, e := range p.Edges {
		arrow := "-->"
		if e.Shuffle {
			arrow = "-.->"
		}
		fmt.Fprintf(&b, "  s%d %s s%d\n", e.From, arrow, e.To)
	}
	return b.String()
}
