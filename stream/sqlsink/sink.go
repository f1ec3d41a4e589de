package sqlsink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/stream"
)

// Dialect says how statements are written.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota // parameters are $1, $2 and so on
	SQLite                    // parameters are ?
)

func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("dialect %d", uint8(d))
}

// Options describes a table that is kept. All but Columns, Row and Dialect are needed.
type Options[K, V any] struct {
	// DB is the database. It stays the caller's, and is closed after the job has ended.
	DB *sql.DB

	// Dialect is that of the database. Zero is PostgreSQL.
	Dialect Dialect

	// Table is the name of the table; schema and table with a dot between.
	Table string

	// Key are the columns of the key, which are unique together.
	Key []string

	// Columns are the other columns that are written; none for a table of keys alone.
	Columns []string

	// KeyOf gives the values of the columns of Key, in their order.
	KeyOf func(k K) []any

	// Row gives the values of Columns, in their order. It may be nil where there are none.
	Row func(k K, v V) []any
}

// Sink returns the sink, to be given to Stream.Sink. Mistakes in the options are told when
// the job starts.
func (o Options[K, V]) Sink() stream.Sink[K, V] { return &sink[K, V]{o: o} }

// sink writes the rows. It has no state, and so serves all sink partitions.
type sink[K, V any] struct {
	o              Options[K, V]
	upsert, remove string // statements; made by Open
}

// Open checks the options, and returns the sink itself.
func (s *sink[K, V]) Open(stream.SinkPartition) (stream.Sink[K, V], error) {
	if err := s.o.check(); err != nil {
		return nil, err
	}
	opened := &sink[K, V]{o: s.o}
	opened.upsert, opened.remove = s.o.statements()
	return opened, nil
}

func (o Options[K, V]) check() error {
	var missing []error
	need := func(ok bool, what string) {
		if !ok {
			missing = append(missing, errors.New("sqlsink: "+what))
		}
	}
	need(o.DB != nil, "Options.DB is nil: open the database first")
	need(o.Dialect <= SQLite, o.Dialect.String()+" is not known: take PostgreSQL or SQLite")
	need(o.Table != "", "Options.Table is empty")
	need(len(o.Key) > 0, "Options.Key is empty: name the columns that tell rows apart")
	need(o.KeyOf != nil, "Options.KeyOf is nil")
	need(o.Row != nil || len(o.Columns) == 0, "Options.Row is nil, and there are Columns")
	return errors.Join(missing...)
}

// statements are that which puts a row and that which deletes one.
func (o Options[K, V]) statements() (upsert, remove string) {
	columns := append(append([]string{}, o.Key...), o.Columns...)
	table := quoteAll(strings.Split(o.Table, "."), ".")
	holders := make([]string, len(columns))
	for i := range holders {
		holders[i] = o.placeholder(i)
	}
	then := "NOTHING"
	if len(o.Columns) > 0 {
		set := make([]string, len(o.Columns))
		for i, c := range o.Columns {
			set[i] = quote(c) + " = excluded." + quote(c)
		}
		then = "UPDATE SET " + strings.Join(set, ", ")
	}
	where := make([]string, len(o.Key))
	for i, c := range o.Key {
		where[i] = quote(c) + " = " + o.placeholder(i)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT (%s) DO %s",
			table, quoteAll(columns, ", "), strings.Join(holders, ", "), quoteAll(o.Key, ", "), then),
		fmt.Sprintf("DELETE FROM %s WHERE %s", table, strings.Join(where, " AND "))
}

func (o Options[K, V]) placeholder(i int) string {
	if o.Dialect == SQLite {
		return "?"
	}
	return "$" + strconv.Itoa(i+1)
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteAll(names []string, between string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, between)
}

// Write puts and deletes the rows of a batch in one transaction. Whatever its error, the batch may
// be written again.
func (s *sink[K, V]) Write(ctx context.Context, batch []stream.Output[K, V]) (err error) {
	tx, err := s.o.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlsink: begin: %w", err)
	}
	if err := s.write(ctx, tx, batch); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlsink: commit: %w", err)
	}
	return nil
}

func (s *sink[K, V]) write(ctx context.Context, tx *sql.Tx, batch []stream.Output[K, V]) error {
	var statements [2]*sql.Stmt // put and delete, once they are needed
	run := func(i int, text string, args []any) error {
		if statements[i] == nil {
			var err error
			if statements[i], err = tx.PrepareContext(ctx, text); err != nil {
				return err
			}
		}
		_, err := statements[i].ExecContext(ctx, args...)
		return err
	}
	for _, r := range batch {
		if r.NoKey {
			return fmt.Errorf("sqlsink: record %s has no key, and so no row: filter such records out, or give them one with KeyBy", r.ID)
		}
		args := s.o.KeyOf(r.Key)
		if len(args) != len(s.o.Key) {
			return fmt.Errorf("sqlsink: KeyOf gives %d values for the %d columns of the key", len(args), len(s.o.Key))
		}
		var err error
		if r.Deleted {
			err = run(1, s.remove, args)
		} else {
			args = args[:len(args):len(args)]
			if s.o.Row != nil {
				args = append(args, s.o.Row(r.Key, r.Value)...)
			}
			if len(args) != len(s.o.Key)+len(s.o.Columns) {
				return fmt.Errorf("sqlsink: Row gives %d values for %d columns", len(args)-len(s.o.Key), len(s.o.Columns))
			}
			err = run(0, s.upsert, args)
		}
		if err != nil {
			return fmt.Errorf("sqlsink: table %s, record %s: %w", s.o.Table, r.ID, err)
		}
	}
	return nil
}
