package sqlsink

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/stream"
)

// recorder is a database that writes down what it is told.
type recorder struct {
	log  []string
	fail string // the statement that fails
}

func (r *recorder) told(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	r.log = append(r.log, line)
	if line == r.fail {
		return errors.New("the disk is full")
	}
	return nil
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return &conn{r}, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }

type conn struct{ r *recorder }

func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return &stmt{c.r, text}, c.r.told("%s", text)
}
func (c *conn) Close() error              { return nil }
func (c *conn) Begin() (driver.Tx, error) { return &tx{c.r}, c.r.told("begin") }

type tx struct{ r *recorder }

func (t *tx) Commit() error   { return t.r.told("commit") }
func (t *tx) Rollback() error { return t.r.told("rollback") }

type stmt struct {
	r    *recorder
	text string
}

func (s *stmt) Close() error                              { return nil }
func (s *stmt) NumInput() int                             { return -1 }
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.New("no queries") }
func (s *stmt) Exec(v []driver.Value) (driver.Result, error) {
	return driver.ResultNoRows, s.r.told("%s %v", s.text[:6], v)
}

func options(r *recorder) Options[string, int] {
	return Options[string, int]{DB: sql.OpenDB(r), Table: "shop.totals", Key: []string{"customer"}, Columns: []string{"cents", `odd"name`},
		KeyOf: func(k string) []any { return []any{k} }, Row: func(k string, v int) []any { return []any{v, len(k)} }}
}

func open(t *testing.T, o Options[string, int]) stream.Sink[string, int] {
	t.Helper()
	s, err := o.Sink().(stream.Opener[string, int]).Open(stream.SinkPartition{})
	require.NoError(t, err)
	return s
}

// A batch is one transaction of upserts and deletes, in order, in the words of each dialect.
func TestStatements(t *testing.T) {
	batch := []stream.Output[string, int]{{Key: "ann", Value: 5}, {Key: "bob", Deleted: true}, {Key: "ann", Value: 7}}
	r := new(recorder)
	require.NoError(t, open(t, options(r)).Write(t.Context(), batch))
	require.Equal(t, []string{
		"begin",
		`INSERT INTO "shop"."totals" ("customer", "cents", "odd""name") VALUES ($1, $2, $3) ON CONFLICT ("customer") DO UPDATE SET "cents" = excluded."cents", "odd""name" = excluded."odd""name"`,
		"INSERT [ann 5 3]",
		`DELETE FROM "shop"."totals" WHERE "customer" = $1`,
		"DELETE [bob]",
		"INSERT [ann 7 3]",
		"commit",
	}, r.log)

	r = new(recorder)
	o := options(r)
	o.Dialect, o.Table, o.Columns, o.Row, o.Key = SQLite, "seen", nil, nil, []string{"day", "customer"}
	o.KeyOf = func(k string) []any { return []any{"monday", k} }
	require.NoError(t, open(t, o).Write(t.Context(), batch[:2]))
	require.Equal(t, []string{
		"begin",
		`INSERT INTO "seen" ("day", "customer") VALUES (?, ?) ON CONFLICT ("day", "customer") DO NOTHING`,
		"INSERT [monday ann]",
		`DELETE FROM "seen" WHERE "day" = ? AND "customer" = ?`,
		"DELETE [monday bob]",
		"commit",
	}, r.log)
}

// What fails leaves nothing behind, and the error says which record it was.
func TestFailures(t *testing.T) {
	batch := []stream.Output[string, int]{{ID: "job/step/0/1", Key: "ann", Value: 5}, {ID: "job/step/0/2", Key: "bob", Value: 6}}
	r := &recorder{fail: "INSERT [bob 6 3]"}
	require.ErrorContains(t, open(t, options(r)).Write(t.Context(), batch), "table shop.totals, record job/step/0/2: the disk is full")
	require.Equal(t, "rollback", r.log[len(r.log)-1])
	r = &recorder{fail: "commit"}
	require.ErrorContains(t, open(t, options(r)).Write(t.Context(), batch), "sqlsink: commit: the disk is full")
	r = &recorder{fail: "begin"}
	require.ErrorContains(t, open(t, options(r)).Write(t.Context(), batch), "sqlsink: begin: the disk is full")

	for want, wrong := range map[string]func(o *Options[string, int]){
		"Row gives 1 values for 2 columns":                  func(o *Options[string, int]) { o.Row = func(string, int) []any { return []any{1} } },
		"KeyOf gives 0 values for the 1 columns of the key": func(o *Options[string, int]) { o.KeyOf = func(string) []any { return nil } },
	} {
		r = new(recorder)
		o := options(r)
		wrong(&o)
		require.ErrorContains(t, open(t, o).Write(t.Context(), batch), want)
		require.Equal(t, "rollback", r.log[len(r.log)-1])
	}
	require.ErrorContains(t, open(t, options(new(recorder))).Write(t.Context(), []stream.Output[string, int]{{ID: "x/y/0/7", NoKey: true}}), "record x/y/0/7 has no key")
}

// Mistakes in the options are told together when the job opens the sink.
func TestOptionsAreChecked(t *testing.T) {
	_, err := Options[string, int]{Columns: []string{"a"}, Dialect: 9}.Sink().(stream.Opener[string, int]).Open(stream.SinkPartition{})
	for _, what := range []string{"DB is nil", "dialect 9 is not known", "Table is empty", "Key is empty", "KeyOf is nil", "Row is nil"} {
		require.ErrorContains(t, err, what)
	}
}
