package log

import (
	"sync"
	"sync/atomic"
)

// signal wakes everybody who waits for a condition that atomics tell. A waiter
// takes the channel first and looks at the condition after, so that it misses
// nothing. Without waiters a broadcast costs one load.
type signal struct {
	waiting atomic.Bool // somebody may hold ch; set under mu

	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	s.waiting.Store(true)
	return s.ch
}

func (s *signal) broadcast() {
	if !s.waiting.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
	s.waiting.Store(false)
}
