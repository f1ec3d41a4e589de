package log

import "sync/atomic"

// worker does work in a goroutine that is there only while there is some: whoever has
// some says where it is found, and wakes the worker.
//
//	idle ──wake──▶ working ──wake──▶ workingAgain
//	 ▲                │  ▲                │
//	 └──work done─────┘  └────work done───┘
//
// From each of them stop leads to stopped.
type worker struct {
	work  func() // does all that there is to do
	state atomic.Int32
	ended chan struct{} // closed by the goroutine that stop finds at work
}

const (
	idle         int32 = iota
	working            // a goroutine is there
	workingAgain       // and has to look once more
	stopped
)

func newWorker(work func()) *worker {
	return &worker{work: work, ended: make(chan struct{})}
}

// wake has work called after the call of wake began, unless the worker is stopped.
func (w *worker) wake() {
	for {
		switch state := w.state.Load(); state {
		case idle:
			if w.state.CompareAndSwap(idle, working) {
				go w.run() // stop waits for it
				return
			}
		case working:
			if w.state.CompareAndSwap(working, workingAgain) {
				return
			}
		default:
			return
		}
	}
}

func (w *worker) run() {
	for {
		w.work()
		if w.state.CompareAndSwap(working, idle) {
			return
		}
		if !w.state.CompareAndSwap(workingAgain, working) {
			close(w.ended)
			return
		}
	}
}

// stop ends the worker for good and waits for what it is doing. It may be called once.
func (w *worker) stop() {
	if was := w.state.Swap(stopped); was == working || was == workingAgain {
		<-w.ended
	}
}
