package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckPanicsWithTheMessage(t *testing.T) {
	require.NotPanics(t, func() { Check(true, "offset %d", 1) })
	require.PanicsWithValue(t, "thalweg: invariant violated: offset 1 after 2", func() {
		Check(false, "offset %d after %d", 1, 2)
	})
}
