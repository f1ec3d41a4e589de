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
		// Three lives in four are counted from when the program works, so that it
		// is not always killed while it opens.
		life, fromStart := time.Duration(random.Int64N(int64(longest))), random.IntN(4) == 0
		if kills == c.kills {
			c.rate, life = 0, 0
		}
		run := exec.CommandContext(ctx, program,
			"-dir", c.dir,
			"-interval", c.interval.String(),
			"-partitions", strconv.Itoa(c.partitions),
			"-rate", strconv.Itoa(c.rate))
		killed, err := killAfter(run, life, fromStart, out)
		if !killed {
			return kills, err
		}
		kills++
		fmt.Fprintf(out, "kill -9 after %v (kill %d)\n", life.Round(time.Millisecond), kills)
		longest += longest / 100
	}
}

// killAfter starts run and kills it after life, counted from its start or from the
// first that it says, unless it ends before; a life of zero has no end. It
// returns whether it was killed and how it ended otherwise.
func killAfter(run *exec.Cmd, life time.Duration, fromStart bool, out io.Writer) (killed bool, err error) {
	timer := time.NewTimer(life)
	defer timer.Stop()
	if life == 0 || !fromStart {
		timer.Stop()
	}
	run.Stderr = os.Stderr
	run.Stdout = &watched{out: out, first: func() {
		if life > 0 && !fromStart {
			timer.Reset(life)
		}
	}}
	if err := run.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	select {
	case err := <-ended:
		return false, err
	case <-timer.C:
	}
	if err := run.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) { // SIGKILL where there are signals
		return false, fmt.Errorf("kill: %w", err)
	}
	err = <-ended
	return err != nil, err // without an error it was done a moment before
}

// watched passes on what is written, and calls first before it does so for the
// first time. It is for one writer.
type watched struct {
	out   io.Writer
	first func()
}

func (w *watched) Write(p []byte) (int, error) {
	if w.first != nil {
		w.first()
		w.first = nil
	}
	return w.out.Write(p)
}
