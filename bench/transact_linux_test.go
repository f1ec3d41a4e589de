package bench

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// BenchmarkTransact runs transactions of one record of 100 bytes in each partition, one
// after the other and eight at once, for each sync policy. An operation is one. What is
// read afterwards is what was sent, once.
//
// The floor writes by hand what no log can do without: a batch of the same size into a file
// for each partition, and an entry that says it is committed. Where the policy syncs every
// append, the files of the partitions are synced at once, then the one of the entry; eight
// callers share each of these syncs. Where it syncs every 100 ms, all files are synced then, on
// the way. It writes by calls, as a program does by hand: the log copies to pages that are mapped, and
// exceeds that where nothing waits for a sync.
func BenchmarkTransact(b *testing.B) {
	for _, p := range syncPolicies {
		for _, partitions := range []int{1, 8} {
			for _, callers := range []int{1, 8} {
				b.Run(fmt.Sprintf("sync=%s/partitions=%d/callers=%d", p.name, partitions, callers), func(b *testing.B) {
					floor := transactByHand(b, p.sync, partitions, callers)
					ours := transact(b, p.sync, partitions, callers)
					b.ReportMetric(ours, "transactions/s")
					b.ReportMetric(floor, "floor-transactions/s")
					b.ReportMetric(100*ours/floor, "%floor")
				})
			}
		}
	}
}

// transact returns how many transactions a second there were.
func transact(b *testing.B, policy log.Sync, partitions, callers int) float64 {
	n, err := thalweg.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	t := topic.New[int, []byte]("transacted").ValueCodec(codec.Bytes).Partitions(partitions).Sync(policy).
		PartitionBy(func(k, n int) int { return k % n })
	value := bytes.Repeat([]byte{7}, 100)
	one := func(tx *topic.Tx) error {
		for k := range partitions {
			if err := tx.Send(t, k, value); err != nil {
				return err
			}
		}
		return nil
	}
	if err := n.Transact(b.Context(), one); err != nil { // opens everything
		b.Fatal(err)
	}
	left := make(chan struct{}, callers)
	failed := make(chan error, callers)
	b.ReportAllocs()
	begin, count := time.Now(), 0
	for range callers {
		go func() {
			for range left {
				if err := n.Transact(b.Context(), one); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for b.Loop() {
		select {
		case left <- struct{}{}:
			count++
		case err := <-failed:
			b.Fatal(err)
		}
	}
	close(left)
	for range callers {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(begin)
	read := 0
	for r, err := range n.ReadToEnd(b.Context(), t, topic.Start()) {
		if err != nil || !bytes.Equal(r.Value, value) {
			b.Fatal(r.Value, err)
		}
		read++
	}
	if read != (1+count)*partitions {
		b.Fatalf("%d records are committed after %d transactions in %d partitions", read, 1+count, partitions)
	}
	return float64(count) / took.Seconds()
}

// transactByHand is the floor, over half a second.
func transactByHand(b *testing.B, policy log.Sync, partitions, callers int) float64 {
	b.Helper()
	files := make([]*syncedFile, partitions+1) // the last one is for what says that they are committed
	for i := range files {
		f, err := newSyncedFile(filepath.Join(b.TempDir(), "floor"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	verdict := files[partitions]
	record, entry := make([]byte, batchOfOne), make([]byte, 100)
	syncAll := func(files []*syncedFile) error {
		errs := make([]error, len(files))
		var all sync.WaitGroup
		for i, f := range files {
			all.Go(func() { errs[i] = f.sync() })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	together := 1
	if policy == log.SyncAlways {
		together = callers
	}
	write := func(files []*syncedFile, what []byte) {
		for range together {
			for _, f := range files {
				if err := f.write(what); err != nil {
					b.Fatal(err)
				}
			}
		}
		if policy == log.SyncAlways {
			if err := syncAll(files); err != nil {
				b.Fatal(err)
			}
		}
	}
	begin, count := time.Now(), 0
	synced := begin
	for time.Since(begin) < time.Second/2 {
		write(files[:partitions], record)
		write([]*syncedFile{verdict}, entry)
		count += together
		if policy == syncPolicies[1].sync && time.Since(synced) > 100*time.Millisecond {
			if err := syncAll(files); err != nil {
				b.Fatal(err)
			}
			synced = time.Now()
		}
	}
	return float64(count) / time.Since(begin).Seconds()
}
