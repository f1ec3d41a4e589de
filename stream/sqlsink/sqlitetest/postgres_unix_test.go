//go:build unix

package sqlitetest

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a PostgreSQL server that a test starts for itself, on a socket in a folder of its own.
type server struct {
	t    *testing.T
	bin  string // folder of its programs
	dir  string
	as   *syscall.SysProcAttr
	said bytes.Buffer
	cmd  *exec.Cmd // nil where it does not run
}

// startServer starts a server, or skips the test where none is installed.
func startServer(t *testing.T) *server {
	t.Helper()
	bin := findServer()
	if bin == "" {
		t.Skipf("no PostgreSQL server: install one, so that postgres and initdb are in PATH or in /usr/lib/postgresql/*/bin, or name a database in %s", PostgresVariable)
	}
	dir, err := os.MkdirTemp("", "thalweg-pg-") // a short name, since that of a socket may not be long
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &server{t: t, bin: bin, dir: dir}
	if os.Geteuid() == 0 { // it refuses to run as root
		s.as = asAnother(t)
		require.NoError(t, os.Chown(dir, int(s.as.Credential.Uid), int(s.as.Credential.Gid)))
	}
	out, err := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.start()
	t.Cleanup(s.crash)
	return s
}

// findServer is the folder of the newest server installed; empty where there is none.
func findServer() string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append([]string{filepath.Dir(path)}, dirs...)
	}
	for _, dir := range dirs {
		_, errServer := os.Stat(filepath.Join(dir, "postgres"))
		_, errInit := os.Stat(filepath.Join(dir, "initdb"))
		if errServer == nil && errInit == nil {
			return dir
		}
	}
	return ""
}

func version(bin string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return v
}

// asAnother has a process run as a user that is not root.
func asAnother(t *testing.T) *syscall.SysProcAttr {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
	}
	t.Skip("a PostgreSQL server does not run as root, and there is no user postgres or nobody")
	return nil
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	return cmd
}

// start starts the server, and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	s.said.Reset()
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	require.NoError(s.t, s.cmd.Start())
	db, err := sql.Open("pgx", s.source())
	require.NoError(s.t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for db.PingContext(ctx) != nil {
		if ctx.Err() != nil {
			s.crash()
			s.t.Fatalf("the server does not answer: %s", s.said.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// crash ends the server as it is: it has to recover when it is started again.
func (s *server) crash() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// source is the connection string.
func (s *server) source() string { return "host=" + s.dir + " user=postgres dbname=postgres" }
