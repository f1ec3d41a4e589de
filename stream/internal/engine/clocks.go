package engine

import (
	"encoding/binary"
	"errors"
)

// The event time of a task in a checkpoint: for each clock its name and its state,
// so that a clock is found again when others were added or removed.
//
//	1 byte   format version, 1
//	then for each clock
//	uvarint  length of name, name
//	uvarint  length of state, state
const clocksVersion = 1

var errClocks = errors.New("damaged event time in the checkpoint")

func (t *Task) saveClocks(b []byte) []byte {
	b = append(b, clocksVersion)
	for _, c := range t.clocks {
		b = binary.AppendUvarint(b, uint64(len(c.name)))
		b = append(b, c.name...)
		state := c.save(nil)
		b = binary.AppendUvarint(b, uint64(len(state)))
		b = append(b, state...)
	}
	return b
}

// restoreClocks sets the clocks found in b; a clock without saved state starts anew. What one
// tells the operators behind it when it resumes may depend on others, so all are set before.
func (t *Task) restoreClocks(b []byte) error {
	saved, err := decodeClocks(b)
	if err != nil {
		return err
	}
	var restored []clock
	for _, c := range t.clocks {
		state, ok := saved[c.name]
		if !ok {
			continue
		}
		if err := c.restore(state); err != nil {
			return err
		}
		restored = append(restored, c)
	}
	for _, c := range restored {
		c.resume()
	}
	return nil
}

func decodeClocks(b []byte) (map[string][]byte, error) {
	saved := make(map[string][]byte)
	if len(b) == 0 {
		return saved, nil
	}
	if b[0] != clocksVersion {
		return nil, errClocks
	}
	for b = b[1:]; len(b) > 0; {
		var name, state []byte
		var ok bool
		if name, b, ok = cutBytes(b); !ok {
			return nil, errClocks
		}
		if state, b, ok = cutBytes(b); !ok {
			return nil, errClocks
		}
		saved[string(name)] = state
	}
	return saved, nil
}

func cutBytes(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}
