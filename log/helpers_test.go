package log

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// sampled is the distance between the operations, bytes or the like that a test tries:
// 1, and so all of them; n with -short, where the race detector makes each take ten
// times as long and what it looks for shows in a few.
func sampled[T int | int64](n T) T {
	if testing.Short() {
		return n
	}
	return 1
}

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

// putSum makes the checksum of a registry or seal fit again.
func putSum(b []byte) {
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
}

// putSnapshotSum does the same for a producer snapshot.
func putSnapshotSum(b []byte) {
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
}
