package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/checkpoint"
	"github.com/thalweg/thalweg/log"
)

var recoveryKeys = flag.Int("recovery.keys", 500_000, "keys of BenchmarkRecovery; 10,000,000 take 5 GB of disk")

// recoveryDir tells the process that BenchmarkRecovery starts and kills where its node is.
const recoveryDir = "THALWEG_BENCH_RECOVERY_DIR"

// TestMain is the process to be killed, where it is asked to be.
func TestMain(m *testing.M) {
	if dir := os.Getenv(recoveryDir); dir != "" {
		if err := runUntilKilled(dir, os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// runUntilKilled fills the state of a job and says so, and goes on changing it.
func runUntilKilled(dir, keys string) error {
	n, job, err := openLatest(thalweg.Options{}, dir, everyTenth)
	if err != nil {
		return err
	}
	w := &latestWriter{n: n}
	var count int
	if _, err := fmt.Sscan(keys, &count); err != nil {
		return err
	}
	for i := range count {
		if err := w.add(i, event{}); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := job.CatchUp(bgContext); err != nil {
		return err
	}
	fmt.Println("committed")
	tick := time.NewTicker(10 * time.Millisecond)
	for i := 0; ; i++ {
		if err := w.add(i%count, event{Bot: true, Cents: int64(i)}); err != nil {
			return err
		}
		if i%500 == 499 {
			<-tick.C
		}
	}
}

var bgContext = context.Background()

// BenchmarkRecovery kills a process, with SIGKILL, whose job has a state of 500,000 keys
// (-recovery.keys) and changes 50,000 of them a second, and tells how long it takes from opening
// the node until the first result after that is committed and read. The floor is the same of a node
// that is new.
func BenchmarkRecovery(b *testing.B) {
	for b.Loop() {
		empty := firstResult(b, filepath.Join(b.TempDir(), "empty"))
		dir := filepath.Join(b.TempDir(), "killed")
		child := exec.Command(os.Args[0], fmt.Sprint(*recoveryKeys))
		child.Env = append(os.Environ(), recoveryDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := child.Start(); err != nil {
			b.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "committed\n" {
			b.Fatalf("the process says %q: %v", line, err)
		}
		time.Sleep(300 * time.Millisecond) // some checkpoints of changes
		if err := child.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		_ = child.Wait() // it was killed
		took := firstResult(b, dir)
		b.ReportMetric(took.Seconds()*1e3, "first-result-ms")
		b.ReportMetric(empty.Seconds()*1e3, "floor-first-result-ms")
		b.ReportMetric(100*empty.Seconds()/took.Seconds(), "%floor")
	}
}

// firstResult opens a node, starts the job and writes an event of a bot, and is how long it took
// until a result that was not there before can be read as committed.
func firstResult(b *testing.B, dir string) time.Duration {
	b.Helper()
	start := time.Now()
	n, err := thalweg.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	if err := n.Create(b.Context(), bots, latestEvents); err != nil {
		b.Fatal(err)
	}
	results := partitionOf(b, n, bots.Name(), 0)
	r := results.Reader(results.End().Offset, log.ReadCommitted)
	defer r.Close()
	job, err := n.Start(b.Context(), latest(checkpoint.Every(5*time.Millisecond)))
	if err != nil {
		b.Fatal(err)
	}
	w := &latestWriter{n: n}
	if err := errors.Join(w.add(1, event{Bot: true}), w.flush()); err != nil {
		b.Fatal(err)
	}
	for {
		read, err := r.Next()
		if err == nil && !read.Control {
			took := time.Since(start)
			it := read.Records()
			if !it.Next() {
				b.Fatal("a batch without a record")
			}
			if e, err := decodeEvent(it.Value); err != nil || !e.Bot || keyNumber(int(binary.BigEndian.Uint64(e.User[8:]))) != e.User {
				b.Fatal(e, err)
			}
			return took
		}
		if err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		select {
		case <-job.Done():
			b.Fatal(job.Wait())
		case <-time.After(200 * time.Microsecond):
		}
	}
}
