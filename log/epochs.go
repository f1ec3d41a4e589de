package log

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
)

// epochStart says that the records from Start on were written in Epoch, until the
// next entry's Start.
type epochStart struct {
	Epoch LeaderEpoch
	Start Offset
}

// epochs tells the leader epoch of every record. Epoch and Start both grow from
// entry to entry. A value is never changed in place, so readers share it.
type epochs []epochStart

// at returns the epoch of the record at off and the range [from, to) in which it
// holds. ok is false for a record older than the first entry.
func (e epochs) at(off Offset) (epoch LeaderEpoch, from, to Offset, ok bool) {
	i := sort.Search(len(e), func(i int) bool { return e[i].Start > off })
	to = math.MaxInt64
	if i < len(e) {
		to = e[i].Start
	}
	if i == 0 {
		return 0, 0, to, false
	}
	return e[i-1].Epoch, e[i-1].Start, to, true
}

// before returns the epoch of the record before off, 0 where there is none.
func (e epochs) before(off Offset) LeaderEpoch {
	epoch, _, _, _ := e.at(off - 1)
	return epoch
}

// endOf returns where the first epoch after the given one starts, or end.
func (e epochs) endOf(epoch LeaderEpoch, end Offset) Offset {
	if i := sort.Search(len(e), func(i int) bool { return e[i].Epoch > epoch }); i < len(e) {
		return e[i].Start
	}
	return end
}

// last returns the newest epoch; ok is false when there is none.
func (e epochs) last() (epoch LeaderEpoch, ok bool) {
	if len(e) == 0 {
		return 0, false
	}
	return e[len(e)-1].Epoch, true
}

// with returns e with an entry for a batch in epoch that starts at base, which is
// e itself when epoch is its newest.
func (e epochs) with(epoch LeaderEpoch, base Offset) epochs {
	if last, ok := e.last(); ok && last == epoch {
		return e
	}
	return append(slices.Clip(e), epochStart{Epoch: epoch, Start: base})
}

// truncate returns the entries that are still true when the log ends at end.
func (e epochs) truncate(end Offset) epochs {
	n := sort.Search(len(e), func(i int) bool { return e[i].Start >= end })
	return e[:n:n]
}

// deleteBefore drops entries no record from start-1 on needs, where start is the
// first offset in any file. The one of start-1 stays, for it is part of the
// position start.
func (e epochs) deleteBefore(start Offset) epochs {
	i := sort.Search(len(e), func(i int) bool { return e[i].Start > start-1 })
	return e[max(i-1, 0):]
}

// encodeEpochs encodes the leader epoch file: a checkpoint file with epoch and
// start offset in each line.
func encodeEpochs(e epochs) []byte {
	lines := make([]string, len(e))
	for i, entry := range e {
		lines[i] = strconv.FormatInt(int64(entry.Epoch), 10) + " " + strconv.FormatInt(int64(entry.Start), 10)
	}
	return encodeCheckpoint(lines)
}

func decodeEpochs(b []byte) (epochs, error) {
	entries, err := decodeCheckpoint(b, 2)
	if err != nil {
		return nil, err
	}
	var e epochs
	for i, entry := range entries {
		epoch, err := parseNumber(entry[0], 32)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+3, err)
		}
		if LeaderEpoch(epoch) == endOfEpochs {
			return nil, fmt.Errorf("line %d: no epoch comes after %d", i+3, epoch)
		}
		start, err := parseNumber(entry[1], 64)
		if err != nil || start < 0 {
			return nil, fmt.Errorf("line %d: %.32q is no offset", i+3, entry[1])
		}
		if n := len(e); n > 0 && (e[n-1].Epoch >= LeaderEpoch(epoch) || e[n-1].Start >= Offset(start)) {
			return nil, fmt.Errorf("line %d: epoch and offset do not both grow", i+3)
		}
		e = append(e, epochStart{Epoch: LeaderEpoch(epoch), Start: Offset(start)})
	}
	return e, nil
}
