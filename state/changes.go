package state

// change is the newest change of a key that a follower has read.
type change struct {
	value   blobRef
	deleted bool
}

// changes collects the changes of one step of a follower: the newest of each key,
// copied out of the log. It keeps its memory from step to step.
type changes struct {
	table  overlay // of change
	values arena
	bytes  int64 // memory the changes take, about
	order  []sortedID
}

// changeSize is what a change takes besides its key and value: an entry and a slot.
const changeSize = 80

func newChanges() *changes {
	return &changes{table: newOverlay(valuesOf[change](nil), new(ledger))}
}

// put records a change that is newer than all before it; a nil value deletes.
func (c *changes) put(key, value []byte) {
	hash := Hash(key)
	_, e := c.table.find(hash, key)
	if e == nil {
		_, e = c.table.insert(hash, key)
		c.bytes += int64(len(key)) + changeSize
	}
	now := valueOf[change](e)
	if now.deleted = value == nil; now.deleted {
		return
	}
	// A value of the same length, the usual case, replaces the older one.
	if int(now.value.size) == len(value) {
		copy(c.values.get(now.value), value)
		return
	}
	now.value = c.values.put(value)
	c.bytes += int64(len(value))
}

func (c *changes) len() int { return c.table.used }

// all calls f for every key in ascending order; key and value, nil for a deleted
// key, are valid until reset.
func (c *changes) all(f func(key, value []byte) error) error {
	c.order = c.table.sorted(c.order[:0])
	for _, s := range c.order {
		e := c.table.at(s.id)
		var value []byte
		if newest := valueOf[change](e); !newest.deleted {
			value = c.values.get(newest.value)
		}
		if err := f(c.table.key(e), value); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) reset() {
	c.table.reset()
	c.values.reset()
	c.bytes = 0
}
