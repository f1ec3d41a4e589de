package log

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"
)

// Producer snapshot (.snapshot), big-endian: what producers remembers right before
// the offset in its name. The first part is Kafka's, version 1, and can be read
// without the second, which adds what Kafka does not keep.
//
//	at  size  field
//	 0     2  version: 1
//	 2     4  crc32c of [6, end)
//	 6     4  number of producers, and for each
//
//	 0     8  producer id
//	 8     2  producer epoch
//	10     4  last sequence, -1 when no batch is remembered
//	14     8  last offset, -1 when no batch is remembered
//	22     4  last offset minus first offset of the last batch
//	26     8  wall clock at the last batch, Unix ms
//	34     4  coordinator epoch: -1
//	38     8  first offset of the open transaction, -1 without one
//
// Second part, when anything follows:
//
//	 0     4  magic "thlw"
//	 4     2  version: 1
//	          for each producer, in the same order
//
//	 0     1  how its last transaction ended: 0 undecided, 1 committed, 2 aborted
//	 1     8  wall clock at the begin of the open transaction, Unix ms
//	 9     1  number of batches before the last, oldest first, and for each
//	            4 first sequence, 4 last sequence, 8 first offset, 8 last offset
//
//	 0     4  number of owners, and for each
//
//	 0     8  first id of the owner's block
//	 8     8  highest id that ended
//	16     1  how it ended
const (
	snapshotVersion       = 1
	snapshotHeaderBytes   = 10
	snapshotProducerBytes = 46
	snapshotMagic         = "thlw"
	snapshotExtension     = 1
	snapshotSentBytes     = 24
	snapshotOwnerBytes    = 17
)

// encodeSnapshot encodes s, without what has expired.
func (s *producers) encodeSnapshot(now int64) []byte {
	s.prune(now)
	ids := slices.Sorted(maps.Keys(s.byID))
	b := make([]byte, 0, snapshotHeaderBytes+len(ids)*(snapshotProducerBytes+10+4*snapshotSentBytes)+
		len(snapshotMagic)+6+len(s.byOwner)*snapshotOwnerBytes)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := s.byID[id]
		newest, some := p.newest()
		if !some {
			newest = sentBatch{lastSequence: noSequence, base: -1, last: -1}
		}
		b = binary.BigEndian.AppendUint64(b, uint64(p.id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(newest.lastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(newest.last))
		b = binary.BigEndian.AppendUint32(b, uint32(newest.last-newest.base))
		b = binary.BigEndian.AppendUint64(b, uint64(p.lastSeen))
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
		b = binary.BigEndian.AppendUint64(b, uint64(p.transactionFirst))
	}
	b = append(b, snapshotMagic...)
	b = binary.BigEndian.AppendUint16(b, snapshotExtension)
	for _, id := range ids {
		p := s.byID[id]
		b = append(b, byte(p.ended))
		b = binary.BigEndian.AppendUint64(b, uint64(p.transactionSince))
		earlier := p.recent[recentBatches-max(p.count, 1) : recentBatches-1]
		b = append(b, byte(len(earlier)))
		for _, sent := range earlier {
			b = binary.BigEndian.AppendUint32(b, uint32(sent.firstSequence))
			b = binary.BigEndian.AppendUint32(b, uint32(sent.lastSequence))
			b = binary.BigEndian.AppendUint64(b, uint64(sent.base))
			b = binary.BigEndian.AppendUint64(b, uint64(sent.last))
		}
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.byOwner)))
	for _, first := range slices.Sorted(maps.Keys(s.byOwner)) {
		b = binary.BigEndian.AppendUint64(b, uint64(first))
		b = binary.BigEndian.AppendUint64(b, uint64(s.byOwner[first].id))
		b = append(b, byte(s.byOwner[first].ended))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

var errSnapshotCut = errors.New("it is cut off")

// decodeSnapshot reads a snapshot, ours or Kafka's.
func decodeSnapshot(b []byte, expiry time.Duration) (*producers, error) {
	if len(b) < snapshotHeaderBytes {
		return nil, errSnapshotCut
	}
	if version := int16(binary.BigEndian.Uint16(b)); version != snapshotVersion {
		return nil, fmt.Errorf("%w: producer snapshot has version %d, known is %d", ErrVersion, version, snapshotVersion)
	}
	if stored, computed := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[6:], castagnoli); stored != computed {
		return nil, fmt.Errorf("checksum is %08x, the content gives %08x", stored, computed)
	}
	count := int64(binary.BigEndian.Uint32(b[6:]))
	b = b[snapshotHeaderBytes:]
	if count*snapshotProducerBytes > int64(len(b)) {
		return nil, errSnapshotCut
	}
	s := newProducers(nil, expiry)
	order := make([]*producer, count)
	for i := range order {
		p, err := decodeSnapshotProducer(b[:snapshotProducerBytes])
		if err != nil {
			return nil, err
		}
		b = b[snapshotProducerBytes:]
		if s.byID[p.id] != nil {
			return nil, fmt.Errorf("producer %d comes twice", p.id)
		}
		s.byID[p.id], order[i] = p, p
		if p.open() {
			s.opened = append(s.opened, p)
		}
	}
	slices.SortFunc(s.opened, func(a, b *producer) int { return cmp.Compare(a.transactionFirst, b.transactionFirst) })
	if len(b) > 0 {
		if err := s.decodeExtension(b, order); err != nil {
			return nil, err
		}
	}
	s.pruneAt = max(firstPrune, 2*len(s.byID))
	return s, nil
}

func decodeSnapshotProducer(b []byte) (*producer, error) {
	p := &producer{
		id:               ProducerID(binary.BigEndian.Uint64(b)),
		epoch:            int16(binary.BigEndian.Uint16(b[8:])),
		lastSeen:         int64(binary.BigEndian.Uint64(b[26:])),
		transactionFirst: Offset(binary.BigEndian.Uint64(b[38:])),
	}
	lastSequence := int32(binary.BigEndian.Uint32(b[10:]))
	last := Offset(binary.BigEndian.Uint64(b[14:]))
	delta := int32(binary.BigEndian.Uint32(b[22:]))
	if p.id < 0 || p.transactionFirst < -1 || delta < 0 || last >= 0 && Offset(delta) > last {
		return nil, fmt.Errorf("producer %d is implausible", p.id)
	}
	if lastSequence >= 0 && last >= 0 {
		p.remember(sentBatch{
			firstSequence: addSequence(lastSequence, -delta),
			lastSequence:  lastSequence,
			base:          last - Offset(delta),
			last:          last,
		})
	}
	return p, nil
}

// decodeExtension reads the second part.
func (s *producers) decodeExtension(b []byte, order []*producer) error {
	take := func(n int) []byte {
		if n > len(b) {
			return nil
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	head := take(len(snapshotMagic) + 2)
	if head == nil || string(head[:len(snapshotMagic)]) != snapshotMagic {
		return errors.New("what follows the producers is not ours")
	}
	if version := binary.BigEndian.Uint16(head[len(snapshotMagic):]); version != snapshotExtension {
		return fmt.Errorf("%w: second part has version %d, known is %d", ErrVersion, version, snapshotExtension)
	}
	for _, p := range order {
		fields := take(10)
		if fields == nil {
			return errSnapshotCut
		}
		p.ended = verdict(fields[0])
		p.transactionSince = int64(binary.BigEndian.Uint64(fields[1:]))
		earlier := int(fields[9])
		newest, some := p.newest()
		if p.ended > aborted || earlier >= recentBatches || earlier > 0 && !some {
			return fmt.Errorf("producer %d is implausible", p.id)
		}
		if p.count = 0; some {
			for range earlier {
				fields := take(snapshotSentBytes)
				if fields == nil {
					return errSnapshotCut
				}
				p.remember(sentBatch{
					firstSequence: int32(binary.BigEndian.Uint32(fields)),
					lastSequence:  int32(binary.BigEndian.Uint32(fields[4:])),
					base:          Offset(binary.BigEndian.Uint64(fields[8:])),
					last:          Offset(binary.BigEndian.Uint64(fields[16:])),
				})
			}
			p.remember(newest)
		}
	}
	fields := take(4)
	if fields == nil {
		return errSnapshotCut
	}
	for range binary.BigEndian.Uint32(fields) {
		fields := take(snapshotOwnerBytes)
		if fields == nil {
			return errSnapshotCut
		}
		first := ProducerID(binary.BigEndian.Uint64(fields))
		end := ownerEnd{id: ProducerID(binary.BigEndian.Uint64(fields[8:])), ended: verdict(fields[16])}
		if _, twice := s.byOwner[first]; twice || first < 0 || end.id < first || end.ended > aborted {
			return fmt.Errorf("owner %d is implausible", first)
		}
		s.byOwner[first] = end
	}
	if len(b) > 0 {
		return fmt.Errorf("%d bytes follow the last owner", len(b))
	}
	return nil
}
