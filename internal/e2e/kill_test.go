package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/window"
)

// The test binary, started with a pipeline in this variable, is a process that runs
// it over a directory, as in "requests 7 5ms /path".
const childVariable = "THALWEG_E2E_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childVariable); job != "" {
		if err := runChild(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pace is called for each record. In a process that is to be killed it makes a run
// last about a second, so that most kills meet a run that works.
var pace = func() {}

var (
	killedRequests = topic.New[string, request]("requests").Partitions(5)
	killedEdits    = topic.New[string, edit]("edits").Partitions(3)
)

// killedResults are the topics of results with so many partitions.
func killedResults(partitions int) (topic.Topic[window.Key[int], traffic], topic.Topic[window.Key[string], activity], topic.Topic[window.Key[page], int64]) {
	return topic.New[window.Key[int], traffic]("per-minute").Partitions(partitions),
		topic.New[window.Key[string], activity]("by-channel").Partitions(partitions),
		topic.New[window.Key[page], int64]("by-page").Partitions(partitions)
}

func killedTopology(pipeline string, partitions int, interval time.Duration) *stream.Topology {
	perMinute, byChannel, byPage := killedResults(partitions)
	if pipeline == "requests" {
		return countRequests(killedRequests, perMinute, interval)
	}
	return countEdits(killedEdits, byChannel, byPage, interval)
}

func runChild(job string) error {
	f := strings.SplitN(job, " ", 4)
	partitions, err := strconv.Atoi(f[1])
	if err != nil {
		return err
	}
	interval, err := time.ParseDuration(f[2])
	if err != nil {
		return err
	}
	allowed := make(chan struct{})
	pace = func() { <-allowed }
	go func() {
		for range time.Tick(time.Millisecond) {
			for range 40 {
				allowed <- struct{}{}
			}
		}
	}()
	node, err := thalweg.Open(f[3])
	if err != nil {
		return err
	}
	err = node.Run(context.Background(), killedTopology(f[0], partitions, interval))
	return errors.Join(err, node.Close())
}

// The web server's and the encyclopedia's counts are the known ones when the process
// that makes them is killed with SIGKILL again and again; committed readers see each
// result once.
func TestKilledAtRandom(t *testing.T) {
	kills := 15
	if n, err := strconv.Atoi(os.Getenv("THALWEG_KILLS")); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 4
	}
	for _, c := range []struct {
		pipeline   string
		partitions int
		interval   time.Duration
	}{
		{"requests", 1, 5 * time.Millisecond},
		{"requests", 7, 200 * time.Millisecond},
		{"edits", 7, 5 * time.Millisecond},
		{"edits", 1, 200 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s, %d partitions, checkpoints every %v", c.pipeline, c.partitions, c.interval), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			node, err := thalweg.Open(dir)
			require.NoError(t, err)
			if c.pipeline == "requests" {
				send(t, node, killedRequests, readRequests(t), func(r request) string { return r.Host })
			} else {
				send(t, node, killedEdits, readEdits(t), func(e edit) string { return e.User })
			}
			require.NoError(t, node.Close())

			self, err := os.Executable()
			require.NoError(t, err)
			killed := 0
			for done := false; !done; {
				child := exec.Command(self)
				child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %v %s", childVariable, c.pipeline, c.partitions, c.interval, dir))
				child.Stderr = os.Stderr
				require.NoError(t, child.Start())
				var timer *time.Timer
				if killed < kills {
					timer = time.AfterFunc(time.Duration(rng.IntN(int(600*time.Millisecond))), func() { _ = child.Process.Kill() })
				}
				err := child.Wait()
				if timer != nil {
					timer.Stop()
				}
				if done = err == nil; !done {
					require.Equal(t, -1, child.ProcessState.ExitCode(), "ended by the signal and nothing else")
					killed++
				}
			}
			t.Logf("%d kills", killed)
			require.Positive(t, killed)

			node, err = thalweg.Open(dir)
			require.NoError(t, err)
			defer node.Close()
			perMinute, byChannel, byPage := killedResults(c.partitions)
			if c.pipeline == "requests" {
				require.Equal(t, requestsByMinute(t), results(t, node, perMinute))
				return
			}
			require.Equal(t, activityByHour(t), inNumbers(results(t, node, byChannel)))
			require.Equal(t, wantTopPages(t), topPages(results(t, node, byPage)))
		})
	}
}
