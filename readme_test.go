package thalweg_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program in the README is the one that the example runs.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	code := unindented(string(example))
	for _, block := range blocks {
		for part := range strings.SplitSeq(block[1], "\n// ...\n") {
			require.Contains(t, code, unindented(part))
		}
	}
}

// unindented drops the space around every line and the lines left empty.
func unindented(code string) string {
	var kept []string
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
