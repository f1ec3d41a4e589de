package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// runKilled runs the program as a process of its own, kills it at a random moment
// and starts it again, until one run gets to its end. It kills c.kills times at
// most, lets the next run go as fast as it can, and returns how often it killed.
func runKilled(ctx context.Context, c config, out io.Writer) (kills int, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	if c.rate == 0 {
		c.rate = 20_000
	}
	fmt.Fprintf(out, "seed %d\n", c.seed)
	random := rand.New(rand.NewPCG(c.seed, 0))
	longest := 400 * time.Millisecond // grows, so that a slow machine gets to the end too
	for {
		if kills == c.kills {
			c.rate = 0
		}
		run := exec.CommandContext(ctx, program,
			"-dir", c.dir,
			"-interval", c.interval.String(),
			"-partitions", strconv.Itoa(c.partitions),
			"-rate", strconv.Itoa(c.rate))
		run.Stdout, run.Stderr = out, os.Stderr
		if err := run.Start(); err != nil {
			return kills, err
		}
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()

		var kill <-chan time.Time
		life := time.Duration(random.Int64N(int64(longest)))
		if kills < c.kills {
			kill = time.After(life)
		}
		select {
		case err := <-ended:
			return kills, err
		case <-kill:
			err := run.Process.Kill() // SIGKILL where there are signals
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				return kills, fmt.Errorf("kill: %w", err)
			}
			if err := <-ended; err == nil {
				return kills, nil // it was done a moment before
			}
			kills++
			fmt.Fprintf(out, "kill -9 after %v (kill %d)\n", life.Round(time.Millisecond), kills)
		}
		longest += longest / 100
	}
}
