package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"
)

// runKilled runs the program as a process of its own and kills it at a random moment after
// it has opened its node, at most kills times, and at first soon. The last run goes to its
// end.
func runKilled(ctx context.Context, dir string, kills int, out io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range kills {
		longest := 50*time.Millisecond + time.Duration(i)*50*time.Millisecond
		killed, err := runOnce(exec.CommandContext(ctx, program, "-dir", dir), rand.N(longest), out)
		if !killed {
			return err
		}
	}
	_, err = runOnce(exec.CommandContext(ctx, program, "-dir", dir), 0, out)
	return err
}

// runOnce kills the program after life, counted from the first line that it prints; a life
// of zero has no end.
func runOnce(run *exec.Cmd, life time.Duration, out io.Writer) (killed bool, err error) {
	run.Stderr = os.Stderr
	printed, err := run.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := run.Start(); err != nil {
		return false, err
	}
	var kill *time.Timer
	for lines := bufio.NewScanner(printed); lines.Scan(); {
		fmt.Fprintln(out, lines.Text())
		if kill == nil && life > 0 {
			kill = time.AfterFunc(life, func() { _ = run.Process.Kill() }) // SIGKILL where there are signals
		}
	}
	err = run.Wait()
	if err != nil && kill != nil && !kill.Stop() {
		fmt.Fprintf(out, "killed after %v\n", life.Round(time.Millisecond))
		return true, nil
	}
	return false, err
}
