package main

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary behave as the program, so that a test can kill it.
const asProgram = "THALWEG_CLAIMS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// output is written by several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

const allThere = "all 1009 claims are there, once each: 988 were settled, 21 are for people\n"

// Every claim is there once, three members have shared the work, and a second run finds
// nothing left to do.
func TestClaimsAreThereOnce(t *testing.T) {
	dir := t.TempDir()
	var out output
	require.NoError(t, run(t.Context(), dir, &out))
	require.Contains(t, out.text.String(), "sent 56456 flights; 0 were there\n")
	require.Contains(t, out.text.String(), "the third member rated ")
	require.Contains(t, out.text.String(), allThere)

	out.text.Reset()
	require.NoError(t, run(t.Context(), dir, &out))
	require.Contains(t, out.text.String(), "sent 0 flights; 56456 were there\n")
	require.Contains(t, out.text.String(), allThere)
}

// Killed at random moments the program comes to the same end.
func TestClaimsOfAKilledProgram(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 4
	}
	t.Setenv(asProgram, "1")
	var out output
	err := runKilled(t.Context(), t.TempDir(), kills, &out)
	t.Log(out.text.String())
	require.NoError(t, err)
	require.Contains(t, out.text.String(), allThere)
}
