package state_test

import (
	"testing"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/statetest"
)

func TestMemoryConforms(t *testing.T) {
	statetest.Run(t, statetest.Options{
		Backend:  func(*testing.T) state.Backend { return state.Memory() },
		Volatile: true,
	})
}

func TestDiskConforms(t *testing.T) {
	statetest.Run(t, statetest.Options{
		Backend: func(*testing.T) state.Backend { return state.Disk(1 << 20) },
	})
}
