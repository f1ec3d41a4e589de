//go:build !unix

package sqlitetest

import "testing"

type server struct{}

func startServer(t *testing.T) *server {
	t.Skipf("PostgreSQL servers are started on Unix only: name a database in %s", PostgresVariable)
	return nil
}

func (*server) start()         {}
func (*server) crash()         {}
func (*server) source() string { return "" }
