package thalweg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// Node is one open directory, or one that is kept in memory. Its methods may be
// called concurrently; after Close all of them return ErrClosed.
type Node struct {
	options Options
	dir     string // slash-separated; within the file system of Options.Log
	lock    io.Closer
	plane   *checkpoint.Plane
	cache   *state.Cache
	logger  *slog.Logger
	queues  *topic.Queues
	expired tally // records that readers passed over

	done      chan struct{} // closed when Close begins
	closeOnce func() error

	calls    sync.WaitGroup // calls that may still add to producers, consumers or jobs
	watchers sync.WaitGroup // one goroutine for each running job

	mu        sync.Mutex // guards the fields below; a leaf
	closed    bool
	producers map[*producerHost]struct{}
	consumers map[*consumerHost]struct{}
	jobs      map[*stream.Job]*stream.Topology
	txs       []*topic.TxProducer // of Transact, not in use
}

// Open opens the node in dir with the default options, making the directory where
// it is missing. An empty dir keeps all in memory, for tests.
func Open(dir string) (*Node, error) { return Options{}.Open(dir) }

// Open opens the node in dir, making the directory where it is missing, and ends
// every transaction that a crash left open. An empty dir keeps all in memory.
//
// A directory that is open elsewhere is ErrLocked; one in a format that is not
// known is ErrFormat; damage in the log is a *log.CorruptionError.
func (o Options) Open(dir string) (*Node, error) {
	o, err := o.withDefaults(dir == "")
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = "node"
	}
	dir = filepath.ToSlash(dir)

	lock, err := openDirectory(o.Log.FS, dir)
	if err != nil {
		return nil, err
	}
	plane, err := checkpoint.Open(path.Join(dir, logFolder), checkpoint.PlaneOptions{
		FS:             o.Log.FS,
		Log:            o.Log,
		Now:            o.Log.Now,
		SyncInterval:   o.SyncInterval,
		GroupRetention: o.GroupRetention,
		Logger:         o.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("thalweg: open %s: %w", dir, err), lock.Close())
	}
	cache, err := state.NewCache(o.CacheBytes)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("thalweg: open %s: %w", dir, err), plane.Close(), lock.Close())
	}
	n := &Node{
		options:   o,
		dir:       dir,
		lock:      lock,
		plane:     plane,
		cache:     cache,
		logger:    o.Logger,
		done:      make(chan struct{}),
		producers: map[*producerHost]struct{}{},
		consumers: map[*consumerHost]struct{}{},
		jobs:      map[*stream.Job]*stream.Topology{},
	}
	n.queues = n.newQueues()
	n.closeOnce = sync.OnceValue(n.close)
	return n, nil
}

// Close stops the running jobs after a last checkpoint, closes the consumers, which
// commits what their programs have finished, the queues, and the producers, which sends
// what they have queued, and lets go of the directory. Its error has
// that of each job that could not be stopped so; one that had failed before told
// those who waited for it. It is safe to repeat and returns the first result.
func (n *Node) Close() error { return n.closeOnce() }

func (n *Node) close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.calls.Wait() // from here on nothing is added to jobs, producers or consumers

	n.mu.Lock()
	jobs := slices.Collect(maps.Keys(n.jobs))
	producers := slices.Collect(maps.Keys(n.producers))
	consumers := slices.Collect(maps.Keys(n.consumers))
	n.mu.Unlock()

	var errs []error
	for _, j := range jobs {
		select {
		case <-j.Done():
			continue // it ended before: how is for those who wait for it
		default:
		}
		if err := j.Stop(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("thalweg: stop job %q: %w", j.Status().Name, err))
		}
	}
	n.watchers.Wait()
	for _, c := range consumers {
		errs = append(errs, c.close())
	}
	n.queues.Close()
	for _, p := range producers {
		errs = append(errs, p.close())
	}
	close(n.done) // ends the readers; the jobs read on until they had stopped
	n.cache.Close()
	errs = append(errs, n.plane.Close(), n.lock.Close())
	return errors.Join(errs...)
}

// Log is the node's log, to read: an append goes through a producer. It is nil
// when the node is closed.
func (n *Node) Log() *log.Log {
	leave, err := n.enter()
	if err != nil {
		return nil
	}
	defer leave()
	return n.plane.Log()
}

// enter begins a call: until leave is called, Close waits before it takes
// anything away. Calls that wait for long must not hold it.
func (n *Node) enter() (leave func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	n.calls.Add(1)
	return n.calls.Done, nil
}
