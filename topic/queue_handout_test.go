package topic

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A record that is handed to somebody whose context ends in that very moment goes back to
// its partition, for the next who comes.
func TestHandoutToOneWhoGoesIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &queueCore{}
		p := &queuePartition{core: c, wake: make(chan struct{}, 1)}
		g := &handout{partition: p, offset: 7, count: 1}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			got, err := c.receive(ctx, nil)
			if got != nil {
				t.Error("the record was handed out")
			}
			ended <- err
		}()
		synctest.Wait()
		// It has chosen to go, and has yet to say so.
		c.mu.Lock()
		cancel()
		r := c.waiting[0]
		c.waiting = nil
		r.given = g
		close(r.done)
		c.mu.Unlock()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, []*handout{g}, p.back)
		require.Len(t, p.wake, 1, "the partition is told")
	})
}
