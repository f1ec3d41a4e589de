package thalweg_test

import (
	"io/fs"
	"os"
	"path/filepath"
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

// Every file that the documentation names is there: by its path, or by its bare
// name where the page has said in which folder.
func TestDocsNameFilesThatExist(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	file := regexp.MustCompile(`[a-z_]+(?:/[a-z_]+)*\.(?:go|md)\b`)
	bare := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		bare[filepath.Base(name)] = true
		return err
	}))
	named := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range file.FindAllString(string(text), -1) {
			_, fromRoot := os.Stat(filepath.FromSlash(name))
			_, fromPage := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(name)))
			require.True(t, fromRoot == nil || fromPage == nil || bare[name], "%s names %s", page, name)
			named++
		}
	}
	require.Greater(t, named, 20)
}
