package thalweg_test

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/thalweg/thalweg"

// A room is a folder of the house together with its sub-packages. The root
// package is the room ".".
//
// mayImport is the table of docs/architecture.md: a room may always import
// itself and the packages below internal, and besides them only what stands here.
var mayImport = map[string][]string{
	"internal":    {},
	"log":         {},
	"topic/codec": {},
	"topic":       {"log", "topic/codec"},
	"window":      {"topic/codec"},
	"state":       {"log", "topic/codec"},
	"checkpoint":  {"log", "state"},
	"replication": {"log"},
	"stream":      {"topic", "topic/codec", "window", "state", "checkpoint"},
	".":           {"log", "topic/codec", "topic", "window", "state", "checkpoint", "replication", "stream"},
	"examples":    {".", "log", "topic/codec", "topic", "window", "state", "checkpoint", "replication", "stream"},
	"bench":       {".", "log", "topic/codec", "topic", "window", "state", "checkpoint", "replication", "stream"},
	"cmd":         {".", "log", "topic/codec", "topic", "window", "state", "checkpoint", "replication", "stream"},
}

// usesOnly lists the rooms that see public packages only, as a user would.
var usesOnly = []string{"examples", "bench", "cmd"}

// dependencies are the modules decided on, with the rooms whose code may import
// them. Tests, and packages that are made for tests (their name ends in "test"),
// may use all of them.
var dependencies = map[string][]string{
	"github.com/DataDog/sketches-go":    {"stream"},
	"github.com/axiomhq/hyperloglog":    {"stream"},
	"github.com/cockroachdb/pebble/v2":  {"state"},
	"github.com/dgraph-io/ristretto/v2": {"state"},
	"golang.org/x/sync":                 {".", "log", "topic", "state", "checkpoint", "replication", "stream", "examples"},
	"golang.org/x/sys":                  {"internal", "log"},
	"go.etcd.io/raft/v3":                {"replication"},
	"github.com/klauspost/compress":     {"log"},
	"github.com/pierrec/lz4/v4":         {"log"},
	"github.com/stretchr/testify":       {},
	"github.com/twmb/franz-go/pkg/kmsg": {},
	"github.com/anishathalye/porcupine": {},
}

// topLevel are the only folders beside the root package, hidden ones apart.
var topLevel = []string{
	"log", "topic", "window", "state", "checkpoint", "replication", "stream",
	"examples", "bench", "internal", "docs", "cmd",
}

// packages maps a package's folder to the import paths of its non-test files.
type packages map[string][]string

// The import graph follows the table, for every operating system at once.
func TestImportsFollowTheTable(t *testing.T) {
	found, err := readPackages(".")
	require.NoError(t, err)
	require.Contains(t, found, "log", "the reader finds our packages")
	require.Contains(t, found, "topic/codec", "the reader finds nested packages")
	for _, fault := range brokenImports(found) {
		t.Error(fault)
	}
}

// Only the folders of the table exist.
func TestNoOtherTopLevelFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	var tracked []string
	for _, e := range entries {
		if e.IsDir() && holdsGoOrDocs(t, e.Name()) {
			tracked = append(tracked, e.Name())
		}
	}
	require.Empty(t, strayFolders(tracked), "folders that are not in the table")
}

// go.mod asks for nothing that was not decided on.
func TestDependenciesAreDecided(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	direct := directDependencies(string(mod))
	require.NotEmpty(t, direct)
	for _, m := range direct {
		require.Contains(t, dependencies, m, "a direct dependency that was not decided on")
	}
}

// Each rule of the checker rejects a graph that breaks it and nothing else.
func TestImportCheckerRejects(t *testing.T) {
	ours := func(p string) string { return path.Join(module, p) }
	tests := []struct {
		name  string
		graph packages
		want  string // part of the only fault, or empty for none
	}{
		{"a leaf", packages{"log": {"fmt", ours("internal/vfs")}}, ""},
		{"a room and its own sub-package", packages{"stream/streamtest": {ours("stream")}}, ""},
		{"a room another may import", packages{"topic": {ours("log"), ours("topic/codec")}}, ""},
		{"an example that uses all", packages{"examples/x": {module, ours("stream"), ours("checkpoint")}}, ""},
		{"the log looking up", packages{"log": {ours("topic")}}, "log may not import topic"},
		{"a codec that imports", packages{"topic/codec": {ours("log")}}, "topic/codec may not import log"},
		{"the topics' room is not its codecs'", packages{"topic/codec": {ours("topic")}}, "topic/codec may not import topic"},
		{"streams that reach the log", packages{"stream": {ours("log")}}, "stream may not import log"},
		{"a sub-package counts as its room", packages{"stream/streamtest": {ours("log")}}, "stream/streamtest may not import log"},
		{"an imported sub-package too", packages{"window": {ours("state/statetest")}}, "window may not import state/statetest"},
		{"the root below", packages{"checkpoint": {module}}, "checkpoint may not import ."},
		{"internal looking up", packages{"internal/vfs": {ours("log")}}, "internal/vfs may not import log"},
		{"an example with inside knowledge", packages{"examples/x": {ours("internal/vfs")}}, "examples/x may not import internal/vfs"},
		{"a benchmark with inside knowledge", packages{"bench": {ours("log/internal/index")}}, "bench may not import log/internal/index"},
		{"a folder nobody knows", packages{"util": {"fmt"}}, "util is not in the table"},
		{"a dependency in the wrong room", packages{"log": {"github.com/cockroachdb/pebble/v2/vfs"}}, "log may not use github.com/cockroachdb/pebble/v2"},
		{"a test dependency in shipped code", packages{"log": {"github.com/stretchr/testify/require"}}, "log may not use github.com/stretchr/testify"},
		{"a test dependency in a package for tests", packages{"state/statetest": {"github.com/stretchr/testify/require"}}, ""},
		{"a dependency nobody decided on", packages{"log": {"example.org/left/pad"}}, "log uses example.org/left/pad"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			faults := brokenImports(test.graph)
			if test.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			require.Contains(t, faults[0], test.want)
		})
	}
	require.Equal(t, []string{"utils"}, strayFolders([]string{"log", "utils", "docs", ".git"}))
	require.Equal(t, []string{"example.org/a", "example.org/b"}, directDependencies(
		"module x\n\nrequire example.org/a v1.0.0\n\nrequire (\n\texample.org/b v1.0.0\n\texample.org/c v1.0.0 // indirect\n)\n"))
}

// brokenImports returns a sentence for every import that the table forbids.
func brokenImports(found packages) []string {
	var faults []string
	for _, pkg := range slices.Sorted(maps.Keys(found)) {
		room := roomOf(pkg)
		allowed, known := mayImport[room]
		if !known {
			faults = append(faults, fmt.Sprintf("%s is not in the table of rooms", pkg))
			continue
		}
		for _, imp := range found[pkg] {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				if fault := brokenDependency(pkg, room, imp); fault != "" {
					faults = append(faults, fault)
				}
				continue
			}
			target := "."
			if imp != module {
				target = strings.TrimPrefix(imp, module+"/")
			}
			hidden := slices.Contains(strings.Split(target, "/"), "internal")
			switch {
			case hidden && slices.Contains(usesOnly, room):
				faults = append(faults, fmt.Sprintf("%s may not import %s: it sees public packages only", pkg, target))
			case roomOf(target) == "internal", roomOf(target) == room, slices.Contains(allowed, roomOf(target)):
			default:
				faults = append(faults, fmt.Sprintf("%s may not import %s: %s may import %v", pkg, target, room, allowed))
			}
		}
	}
	return faults
}

func brokenDependency(pkg, room, imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for dep, rooms := range dependencies {
		if imp != dep && !strings.HasPrefix(imp, dep+"/") {
			continue
		}
		if slices.Contains(rooms, room) || strings.HasSuffix(pkg, "test") {
			return ""
		}
		return fmt.Sprintf("%s may not use %s, which is for %v and tests", pkg, dep, rooms)
	}
	return fmt.Sprintf("%s uses %s, which is not among the dependencies decided on", pkg, imp)
}

// roomOf returns the room a package folder belongs to.
func roomOf(pkg string) string {
	if pkg == "topic/codec" || strings.HasPrefix(pkg, "topic/codec/") {
		return "topic/codec"
	}
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// readPackages reads the imports of all non-test files below root, whatever
// operating system they are for.
func readPackages(root string) (packages, error) {
	found := packages{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != root && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != root {
				return fs.SkipDir // a module of its own, with dependencies of its own
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(name))
		found[pkg] = append(found[pkg], "unsafe") // so that a package without imports is known too
		for _, spec := range file.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if !slices.Contains(found[pkg], imp) {
				found[pkg] = append(found[pkg], imp)
			}
		}
		return nil
	})
	return found, err
}

func strayFolders(names []string) []string {
	var stray []string
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) {
			stray = append(stray, name)
		}
	}
	return stray
}

// holdsGoOrDocs tells a folder of ours from what a run or a build left behind.
func holdsGoOrDocs(t *testing.T, dir string) bool {
	t.Helper()
	held := false
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(name); err == nil && (ext == ".go" || ext == ".md") {
			held = true
			return fs.SkipAll
		}
		return err
	}))
	return held
}

// directDependencies returns the modules that go.mod requires without the
// remark that they are indirect.
func directDependencies(mod string) []string {
	var direct []string
	inBlock := false
	lines := bufio.NewScanner(strings.NewReader(mod))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		single := strings.HasPrefix(line, "require ") && !strings.HasSuffix(line, "(")
		switch {
		case line == "require (":
			inBlock = true
		case line == ")":
			inBlock = false
		case (inBlock || single) && line != "" && !strings.HasSuffix(line, "// indirect"):
			direct = append(direct, strings.Fields(strings.TrimPrefix(line, "require "))[0])
		}
	}
	return direct
}
