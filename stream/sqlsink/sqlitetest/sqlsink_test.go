package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/sqlsink"
	"github.com/thalweg/thalweg/stream/streamtest"
	"github.com/thalweg/thalweg/topic"
)

// PostgresVariable names a PostgreSQL database to test with, as a connection string. Its table
// thalweg_test_totals is dropped and made anew. Where it is not set a server is started, if there
// is one.
const PostgresVariable = "THALWEG_POSTGRES"

// open opens a database, with an empty table.
func open(t *testing.T, dialect sqlsink.Dialect) *sql.DB {
	t.Helper()
	driver, source := "sqlite", filepath.Join(t.TempDir(), "totals.db")
	if dialect == sqlsink.PostgreSQL {
		if driver, source = "pgx", os.Getenv(PostgresVariable); source == "" {
			source = startServer(t).source()
		}
	}
	return openAt(t, driver, source)
}

func openAt(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Exec(`DROP TABLE IF EXISTS thalweg_test_totals`)
	require.NoError(t, err)
	_, err = db.Exec(`CREATE TABLE thalweg_test_totals (customer TEXT PRIMARY KEY, cents BIGINT NOT NULL)`)
	require.NoError(t, err)
	return db
}

// table is the sink of the test's table.
func table(db *sql.DB, dialect sqlsink.Dialect) stream.Sink[string, int] {
	return sqlsink.Options[string, int]{
		DB: db, Dialect: dialect, Table: "thalweg_test_totals", Key: []string{"customer"}, Columns: []string{"cents"},
		KeyOf: func(k string) []any { return []any{k} },
		Row:   func(_ string, v int) []any { return []any{v} },
	}.Sink()
}

// unreliable is a database connection that fails before, or after, it has done what it was
// asked for.
type unreliable struct {
	stream.Sink[string, int]
	rng *rand.Rand
}

var errConnection = errors.New("the connection is gone")

func (u unreliable) Open(p stream.SinkPartition) (stream.Sink[string, int], error) {
	inner, err := u.Sink.(stream.Opener[string, int]).Open(p)
	return unreliable{inner, u.rng}, err
}

func (u unreliable) Write(ctx context.Context, batch []stream.Output[string, int]) error {
	switch u.rng.IntN(6) {
	case 0:
		return errConnection
	case 1:
		gone, cancel := context.WithCancel(ctx)
		cancel()
		return errors.Join(u.Sink.Write(gone, batch), errConnection)
	case 2:
		return errors.Join(u.Sink.Write(ctx, batch), errConnection)
	}
	return u.Sink.Write(ctx, batch)
}

// The table has the newest value of each key and no other row, whatever fails and crashes on
// the way.
func TestTableIsTheNewestOfTheStream(t *testing.T) {
	for _, dialect := range []sqlsink.Dialect{sqlsink.SQLite, sqlsink.PostgreSQL} {
		t.Run(dialect.String(), func(t *testing.T) {
			db := open(t, dialect)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			in := topic.New[string, int]("orders").Partitions(2)
			app := stream.New("shop")
			app.Stream(in).Sink(unreliable{table(db, dialect), rng}).As("table").Batch(7)
			d := streamtest.New(t, app)
			want := map[string]int{}
			for i := range 300 {
				k := fmt.Sprint("customer ", rng.IntN(20))
				if rng.IntN(5) == 0 {
					delete(want, k)
					d.Input(in).SendRecord(topic.Record[string, int]{Key: k, Deleted: true})
				} else {
					want[k] = i
					d.Input(in).Send(k, i)
				}
				switch rng.IntN(20) {
				case 0:
					d.Process()
				case 1:
					d.Checkpoint()
				case 2:
					d.Crash()
				case 3:
					d.Advance(time.Minute) // for what is to be tried again
				}
			}
			for range 50 {
				d.Checkpoint()
				d.Advance(time.Minute)
			}
			require.Equal(t, want, totals(t, db))
			for _, task := range d.Status().Tasks {
				require.Zero(t, task.Undelivered)
			}
		})
	}
}

// A batch that PostgreSQL refuses, because transactions could not be put in an order, or while it
// is down and has to recover, is written again as a whole; what it has of a batch whose outcome
// nobody knows is written once more, and is the same.
func TestPostgresRefusesAndCrashes(t *testing.T) {
	s := startServer(t)
	db := openAt(t, "pgx", s.source())
	_, err := db.Exec(`
		CREATE SEQUENCE thalweg_test_writes;
		CREATE FUNCTION thalweg_test_refuse() RETURNS trigger AS $$ BEGIN
			IF nextval('thalweg_test_writes') % 11 = 0 THEN
				RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
			END IF;
			RETURN NEW;
		END $$ LANGUAGE plpgsql;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON thalweg_test_totals FOR EACH ROW EXECUTE FUNCTION thalweg_test_refuse()`)
	require.NoError(t, err)
	in := topic.New[string, int]("orders").Partitions(2)
	app := stream.New("shop")
	app.Stream(in).Sink(table(db, sqlsink.PostgreSQL)).As("table").Batch(5)
	d := streamtest.New(t, app)
	want := map[string]int{}
	deliver := func() {
		for range 40 {
			d.Checkpoint()
			d.Advance(time.Minute) // for what is to be tried again
		}
	}
	retries := func() (n int64) {
		for _, task := range d.Status().Tasks {
			n += task.Retries
		}
		return n
	}
	for round := range 4 {
		for i := range 40 {
			k := fmt.Sprint("customer ", i%13)
			want[k] = 100*round + i
			d.Input(in).Send(k, want[k])
		}
		before := retries()
		switch round {
		case 1:
			s.crash()
			d.Checkpoint()
			d.Advance(time.Minute)
			require.Greater(t, retries(), before)
			s.start()
		case 2: // connections end, while the server lives
			_, err := db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
			require.NoError(t, err)
		case 3:
			d.Checkpoint()
			d.Crash()
		}
		deliver()
		require.Equal(t, want, totals(t, db), "round %d", round)
		if round != 3 {
			require.Greater(t, retries(), before, "round %d: some batches were refused", round)
		}
	}
	var writes int
	require.NoError(t, db.QueryRow(`SELECT last_value FROM thalweg_test_writes`).Scan(&writes))
	require.Greater(t, writes, 4*40, "refused batches came again")
}

func totals(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	rows, err := db.Query(`SELECT customer, cents FROM thalweg_test_totals`)
	require.NoError(t, err)
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var customer string
		var cents int
		require.NoError(t, rows.Scan(&customer, &cents))
		got[customer] = cents
	}
	require.NoError(t, rows.Err())
	return got
}
