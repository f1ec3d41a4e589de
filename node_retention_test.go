package thalweg_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// Deleting records does not wait for a job that stands still. The job then fails and says
// what is gone, every time; told to go on it goes on behind it, once, and counts.
func TestJobWhoseRecordsAreDeleted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := thalweg.Open("")
	require.NoError(t, err)
	defer n.Close()
	in, out := numbers, topic.New[string, int]("out")
	start := func(skip bool) *stream.Job {
		app := stream.New("copy")
		if skip {
			app.SkipDeleted()
		}
		app.Stream(in).To(out)
		job, err := n.Start(ctx, app)
		require.NoError(t, err)
		return job
	}
	p, err := n.Producer(in)
	require.NoError(t, err)
	send := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			require.NoError(t, p.Send(ctx, "k", i))
		}
	}
	var got []int
	read := func(want int) {
		t.Helper()
		for r, err := range n.Read(ctx, out, topic.Start()) {
			require.NoError(t, err)
			if r.Value == want {
				break
			}
		}
		got = nil
		for r, err := range n.ReadToEnd(ctx, out, topic.Start()) {
			require.NoError(t, err)
			got = append(got, r.Value)
		}
	}

	send(0, 10)
	job := start(false)
	read(9)
	require.NoError(t, job.Stop(ctx))
	send(10, 500)
	const first = 300
	require.NoError(t, n.DeleteRecords(ctx, in, topic.Offset(first)))

	for range 2 {
		job = start(false)
		err := job.Wait()
		require.ErrorIs(t, err, log.ErrOffsetOutOfRange)
		var gone *stream.DeletedInputError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, stream.DeletedInputError{Partition: gone.Partition, Next: 10, Start: first}, *gone)
		require.ErrorContains(t, err, "SkipDeleted")
	}
	job = start(true)
	read(499)
	require.EqualValues(t, first-10, job.Status().Tasks[0].Deleted)
	require.NoError(t, job.Stop(ctx))
	require.Equal(t, append(count(0, 10), count(first, 500)...), got)

	job = start(false) // what was passed over is committed
	send(500, 501)
	read(500)
	require.Zero(t, job.Status().Tasks[0].Deleted)
	require.NoError(t, job.Stop(ctx))
	require.Equal(t, append(count(0, 10), count(first, 501)...), got)
}
