package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/thalweg/thalweg/log"
)

// A snapshot is the state after all entries before it, cut into snapshotPart
// entries. The checksum covers all before it, since the parts come from several
// record batches.
//
//	size  field
//	 1    format version: snapshotVersion
//	 ...  durableTo, nextProducer, nextBlock
//	 ...  live plain producers, ascending
//	 ...  jobs by name: attempt, live, nonce, first, base, suspects, retained checkpoints
//	 ...  completed transactions by index
//	 ...  sections, ascending by tag, of those that are not empty: tag, length, bytes
//	 4    crc32c, little-endian
//
// Live attempts are not listed: they are the jobs that are live.
const snapshotVersion = 1

// Sections are what a snapshot has gained since its first form. One that is empty is
// left out, so that a snapshot without any is of the first form.
const (
	sectionGroups         = 1 // consumer groups: see appendGroups
	sectionNamedProducers = 2
	sectionTxnOwners      = 3
	sectionOutcomes       = 4
)

// snapshotPartBytes bounds one part, well below the largest batch a log accepts.
const snapshotPartBytes = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The least sizes of an encoded job and completion, which bound how many there can be.
const (
	minJob        = 8
	minCompletion = 4
)

// encodeSnapshot encodes all of m but applied, which the place of the snapshot in
// the log implies.
func encodeSnapshot(b []byte, m *metadata) []byte {
	from := len(b)
	b = append(b, snapshotVersion)
	b = appendInt(b, m.durableTo)
	b = appendInt(b, int64(m.nextProducer))
	b = appendInt(b, int64(m.nextBlock))
	b = appendUint(b, uint64(len(m.producers)))
	for _, id := range sortedOrdered(m.producers) {
		b = appendInt(b, int64(id))
	}
	b = appendUint(b, uint64(len(m.jobs)))
	for _, name := range sortedOrdered(m.jobs) {
		b = appendJob(appendString(b, name), m.jobs[name])
	}
	b = appendUint(b, uint64(len(m.completed)))
	for _, c := range m.completed {
		b = appendInt(appendInt(b, c.index), int64(c.txn))
		b = appendEnds(appendString(b, c.job), c.ends)
	}
	if len(m.groups.Groups) > 0 {
		b = appendSection(b, sectionGroups, appendGroups(nil, m.groups))
	}
	if len(m.named.byName) > 0 {
		b = appendSection(b, sectionNamedProducers, appendNamedProducers(nil, m.named))
	}
	if len(m.txnOwners) > 0 {
		b = appendSection(b, sectionTxnOwners, appendTxnOwners(nil, m.txnOwners))
	}
	if len(m.outcomes.runs) > 0 {
		b = appendSection(b, sectionOutcomes, appendOutcomes(nil, m.outcomes))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

func appendSection(b []byte, tag uint64, data []byte) []byte {
	return appendString(appendUint(b, tag), data)
}

func appendJob(b []byte, j *job) []byte {
	b = appendUint(appendBool(appendInt(b, j.attempt), j.live), j.nonce)
	b = appendInt(appendInt(b, int64(j.first)), j.base)
	b = appendUint(b, uint64(len(j.suspects)))
	for _, s := range j.suspects {
		b = appendInt(appendInt(appendInt(b, s.attempt), int64(s.first)), s.base)
	}
	b = appendUint(b, uint64(len(j.checkpoints)))
	for _, c := range j.checkpoints {
		b = appendInt(appendID(b, c.id), c.index)
		b = appendEnds(appendReports(b, c.reports), c.ends)
	}
	return b
}

// decodeSnapshot is the inverse of encodeSnapshot for a snapshot whose last part is
// the entry at index.
func decodeSnapshot(b []byte, index int64) (*metadata, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: snapshot of %d bytes", ErrInvalid, len(b))
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("%w: snapshot checksum %08x, computed %08x", ErrInvalid, sum, got)
	}
	if body[0] != snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot version %d, this library knows %d", ErrVersion, body[0], snapshotVersion)
	}
	d := &decoder{b: body[1:]}
	m := newMetadata(rules{})
	m.applied = index
	m.durableTo = d.int()
	m.nextProducer, m.nextBlock = log.ProducerID(d.int()), log.ProducerID(d.int())
	producer := log.ProducerID(-1)
	for range d.count(1) {
		id := log.ProducerID(d.int())
		if id <= producer {
			d.fail("producers out of order")
		}
		producer = id
		m.producers[id] = struct{}{}
	}
	name, jobs := "", d.count(minJob)
	for i := range jobs {
		next := d.string()
		if i > 0 && next <= name {
			d.fail("jobs out of order")
		}
		name = next
		j := d.job()
		m.jobs[name] = j
		if j.live {
			m.owners[j.first] = name
		}
	}
	for range d.count(minCompletion) {
		m.completed = append(m.completed, completion{d.int(), log.ProducerID(d.int()), d.string(), d.ends()})
	}
	before := uint64(0)
	for len(d.b) > 0 {
		tag := d.uint()
		if tag <= before {
			d.fail("sections out of order")
		}
		before = tag
		section := &decoder{b: d.bytes()}
		switch {
		case d.err != nil:
		case tag == sectionGroups:
			m.groups = section.groups()
			if len(m.groups.Groups) == 0 {
				section.fail("an empty section")
			}
		case tag == sectionNamedProducers:
			m.named = section.namedProducers()
		case tag == sectionTxnOwners:
			m.txnOwners = section.txnOwners()
		case tag == sectionOutcomes:
			m.outcomes = section.outcomes()
		default:
			return nil, fmt.Errorf("%w: section %d of a snapshot", ErrVersion, tag)
		}
		if err := section.end(); err != nil && d.err == nil {
			d.err = err
		}
	}
	return m, d.end()
}

func (d *decoder) job() *job {
	j := &job{attempt: d.int(), live: d.bool(), nonce: d.uint(), first: log.ProducerID(d.int()), base: d.int()}
	for range d.count(3) {
		j.suspects = append(j.suspects, block{d.int(), log.ProducerID(d.int()), d.int()})
	}
	for range d.count(minPlaced) {
		c := retained{id: d.id(), index: d.int()}
		c.reports, c.ends = d.reports(), d.ends()
		j.checkpoints = append(j.checkpoints, c)
	}
	return j
}

// cutSnapshot cuts an encoded snapshot into the entries that hold it.
func cutSnapshot(b []byte) []snapshotPart {
	parts := (len(b) + snapshotPartBytes - 1) / snapshotPartBytes
	cut := make([]snapshotPart, parts)
	for i := range cut {
		from := i * snapshotPartBytes
		cut[i] = snapshotPart{i, parts, b[from:min(from+snapshotPartBytes, len(b))]}
	}
	return cut
}

// replayer rebuilds metadata from the records of the metadata log.
//
// A log that was cut may keep some entries below the snapshot it was cut at, when
// the process ended in between: until a snapshot is whole, a replay that did not
// begin at offset 0 passes over them.
type replayer struct {
	state *metadata // nil until the replay has a place to start from
	parts []byte
	next  int // the part expected; 0 when no snapshot is being read
}

func newReplayer(start int64) *replayer {
	if start == 0 {
		return &replayer{state: newMetadata(rules{})}
	}
	return &replayer{}
}

// add takes the record at index.
func (r *replayer) add(index int64, value []byte) error {
	e, err := decodeEntry(value)
	if err != nil {
		return err
	}
	part, ok := e.(snapshotPart)
	if !ok {
		r.parts, r.next = nil, 0 // a snapshot that was not finished counts for nothing
		if r.state != nil {
			r.state.apply(index, e)
		}
		return nil
	}
	if part.part == 0 {
		r.parts, r.next = nil, 0
	}
	if part.part != r.next || part.parts <= part.part {
		return fmt.Errorf("%w: part %d of %d of a snapshot where %d was expected", ErrInvalid, part.part, part.parts, r.next)
	}
	r.parts = append(r.parts, part.data...)
	r.next++
	if r.next < part.parts {
		return nil
	}
	state, err := decodeSnapshot(r.parts, index)
	if err != nil {
		return err
	}
	r.state, r.parts, r.next = state, nil, 0
	return nil
}

// finish returns the state after all entries.
func (r *replayer) finish() (*metadata, error) {
	if r.state == nil {
		return nil, fmt.Errorf("%w: the log does not begin at 0 and holds no snapshot", ErrInvalid)
	}
	return r.state, nil
}
