package checkpoint

import (
	"context"
	"fmt"
	"maps"

	"github.com/thalweg/thalweg/log"
)

// namedProducer asks for the producer id of a name: a new one the first time, and the
// same from then on. Unlike a plain producer it outlives the process, so that the next
// one goes on with the numbers of its batches.
type namedProducer struct {
	name string
}

// forgetProducer frees a name of which no partition remembers anything: its id would
// tell nothing that a new one does not.
type forgetProducer struct {
	name string
}

func (namedProducer) kind() entryKind  { return kindNamedProducer }
func (forgetProducer) kind() entryKind { return kindForgetProducer }

func (e namedProducer) appendTo(b []byte) []byte  { return appendString(b, e.name) }
func (e forgetProducer) appendTo(b []byte) []byte { return appendString(b, e.name) }

// namedProducers are the names and their ids, each the inverse of the other. They are
// alive as long as they are remembered.
type namedProducers struct {
	byName map[string]log.ProducerID
	byID   map[log.ProducerID]string
}

func newNamedProducers() namedProducers {
	return namedProducers{map[string]log.ProducerID{}, map[log.ProducerID]string{}}
}

func (n namedProducers) has(id log.ProducerID) bool {
	_, ok := n.byID[id]
	return ok
}

func (n namedProducers) add(name string, id log.ProducerID) {
	n.byName[name], n.byID[id] = id, name
}

func (n namedProducers) forget(name string) {
	delete(n.byID, n.byName[name])
	delete(n.byName, name)
}

func (n namedProducers) clone() namedProducers {
	return namedProducers{maps.Clone(n.byName), maps.Clone(n.byID)}
}

func (m *metadata) namedProducer(e namedProducer) result {
	if id, ok := m.named.byName[e.name]; ok {
		return result{first: id, repeat: true}
	}
	if m.nextProducer >= firstBlock {
		return result{err: ErrExhausted}
	}
	id := m.nextProducer
	m.nextProducer++
	m.named.add(e.name, id)
	return result{first: id}
}

// appendNamedProducers encodes a count, then by name: name, id.
func appendNamedProducers(b []byte, n namedProducers) []byte {
	b = appendUint(b, uint64(len(n.byName)))
	for _, name := range sortedOrdered(n.byName) {
		b = appendInt(appendString(b, name), int64(n.byName[name]))
	}
	return b
}

func (d *decoder) namedProducers() namedProducers {
	n := newNamedProducers()
	before, count := "", d.count(2)
	if count == 0 {
		d.fail("no named producers")
	}
	for i := range count {
		name, id := d.string(), log.ProducerID(d.int())
		if i > 0 && name <= before || n.has(id) {
			d.fail("named producers out of order")
		}
		before = name
		n.add(name, id)
	}
	return n
}

// AcquireNamedProducer returns the producer id of a name. It is durable before it
// returns. Until ReleaseProducer, a second call for the name is ErrProducerOpen.
func (p *Plane) AcquireNamedProducer(ctx context.Context, name string) (log.ProducerID, error) {
	if err := ctx.Err(); err != nil {
		return log.NoProducer, err
	}
	p.stateMu.RLock()
	id, known := p.state.named.byName[name]
	p.stateMu.RUnlock()
	if !known {
		r, err := p.propose(namedProducer{name}, true)
		if err != nil {
			return log.NoProducer, err
		}
		id = r.first
	}
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	if _, open := p.held[id]; open {
		return log.NoProducer, fmt.Errorf("%w: %q", ErrProducerOpen, name)
	}
	p.held[id] = struct{}{}
	return id, nil
}

// releaseNamed lets go of a named producer; ok is false where id is none.
func (p *Plane) releaseNamed(id log.ProducerID) (ok bool) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	delete(p.held, id)
	return p.state.named.has(id)
}

// forgetProducers frees the names of which no partition remembers anything. It is for
// Open, before anybody holds one.
func (p *Plane) forgetProducers() error {
	unknown := maps.Clone(p.state.named.byID)
	for part := range p.log.Partitions() {
		for id := range unknown {
			if _, ok := part.ProducerState(id); ok {
				delete(unknown, id)
			}
		}
	}
	for _, id := range sortedOrdered(unknown) {
		if _, err := p.propose(forgetProducer{unknown[id]}, false); err != nil {
			return err
		}
	}
	return nil
}
