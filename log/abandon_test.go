package log

// abandon ends the log's goroutines as the end of the process would: nothing is
// written any more. It is safe after Close.
func (l *Log) abandon() {
	l.admin.Lock()
	defer l.admin.Unlock()
	if l.isClosed {
		return
	}
	l.isClosed = true
	close(l.stop)
	l.stopped.Wait()
	for p := range l.Partitions() {
		p.halt()
	}
}
