package state

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"
)

// Cache is a node's read cache: decoded values that left the overlay of some
// table, bounded by what they cost in memory. All tables share it.
//
// It promises nothing. It may drop a value, show it late, show it after a newer
// one or go on showing it after it was deleted; see cacheShare for why that is
// harmless.
type Cache struct {
	values valueCache
	owners atomic.Uint64 // last number given to a table
}

// valueCache is what a Cache needs: a map that may forget and delay anything.
type valueCache interface {
	get(slot uint64) (*cached, bool)
	set(slot uint64, c *cached, cost int64)
	del(slot uint64)
	close()
}

// cached is a value in the cache. Nothing but taken changes while others may see
// it, and value is read only by the one who set taken.
type cached struct {
	owner  uint64
	key    string // state key
	trueAt int64  // checkpoint at which value was the key's
	taken  atomic.Bool
	value  any
}

// NewCache returns a cache whose values take about bytes of memory.
func NewCache(bytes int64) (*Cache, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("state: cache of %d bytes", bytes)
	}
	r, err := ristretto.NewCache(&ristretto.Config[uint64, *cached]{
		// Ten counters for each value of 160 bytes, at some three bytes each.
		NumCounters:        min(max(bytes/16, 1<<10), 64<<20),
		MaxCost:            bytes,
		BufferItems:        64,
		IgnoreInternalCost: true,
		KeyToHash:          func(slot uint64) (uint64, uint64) { return slot, 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("state: cache: %w", err)
	}
	return &Cache{values: ristrettoCache{r}}, nil
}

// Close stops the cache's goroutine. Tables that still use it find nothing in it.
func (c *Cache) Close() { c.values.close() }

type ristrettoCache struct {
	*ristretto.Cache[uint64, *cached]
}

func (r ristrettoCache) get(slot uint64) (*cached, bool)        { return r.Get(slot) }
func (r ristrettoCache) set(slot uint64, c *cached, cost int64) { r.Set(slot, c, cost) }
func (r ristrettoCache) del(slot uint64)                        { r.Del(slot) }
func (r ristrettoCache) close()                                 { r.Close() }

// buckets is the number of hash buckets in which a table remembers what left it.
const buckets = 4096

// cacheShare is one table's share of the cache. Every table is an owner of its
// own, so that a rollback, which makes new tables, leaves behind all that the old
// ones had cached.
//
// Two rules make it harmless that the cache is late. A value may be used only if it was
// true at a checkpoint not older than the newest change of any key that left the
// overlay from the same bucket: had the key changed since, that change would have
// left the overlay too, since only then is the cache asked. And a value can be
// taken once: who finds it marks it, and the mark stays with the value however
// long it stays visible, so that no two places ever hold one live object.
type cacheShare struct {
	cache  *Cache // nil for none
	owner  uint64
	newest []int64 // by bucket; nil until something has left
}

func newCacheShare(c *Cache) cacheShare {
	if c == nil {
		return cacheShare{}
	}
	return cacheShare{cache: c, owner: c.owners.Add(1)}
}

// left notes that a key whose last change was at checkpoint change is no longer
// in the overlay.
func (s *cacheShare) left(hash uint64, change int64) {
	if s.cache == nil {
		return
	}
	if s.newest == nil {
		s.newest = make([]int64, buckets)
	}
	b := &s.newest[hash%buckets]
	*b = max(*b, change)
}

func (s *cacheShare) slot(hash uint64) uint64 { return hashMix(hash^hashMul0, s.owner^hashMul1) }

// put hands value over to the cache.
func (s *cacheShare) put(hash uint64, key []byte, value any, trueAt, cost int64) {
	c := &cached{owner: s.owner, key: string(key), trueAt: trueAt, value: value}
	s.cache.values.set(s.slot(hash), c, cost+int64(len(key))+int64(unsafe.Sizeof(*c))+64)
}

// take returns the value of key, which is then the caller's alone, or nil.
func (s *cacheShare) take(hash uint64, key []byte) any {
	if s.newest == nil { // nothing was ever put
		return nil
	}
	slot := s.slot(hash)
	c, ok := s.cache.values.get(slot)
	if !ok || c.owner != s.owner || c.key != string(key) || c.trueAt < s.newest[hash%buckets] {
		return nil
	}
	if !c.taken.CompareAndSwap(false, true) {
		return nil
	}
	value := c.value
	c.value = nil
	s.cache.values.del(slot)
	return value
}
