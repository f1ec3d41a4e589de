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
// thalweg_test_totals is dropped and made anew.
const PostgresVariable = "THALWEG_POSTGRES"

// databases are those to test with.
func databases(t *testing.T) map[sqlsink.Dialect]*sql.DB {
	t.Helper()
	open := func(driver, source string) *sql.DB {
		db, err := sql.Open(driver, source)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = db.Exec(`DROP TABLE IF EXISTS thalweg_test_totals`)
		require.NoError(t, err)
		_, err = db.Exec(`CREATE TABLE thalweg_test_totals (customer TEXT PRIMARY KEY, cents BIGINT NOT NULL)`)
		require.NoError(t, err)
		return db
	}
	all := map[sqlsink.Dialect]*sql.DB{sqlsink.SQLite: open("sqlite", filepath.Join(t.TempDir(), "totals.db"))}
	if source := os.Getenv(PostgresVariable); source != "" {
		all[sqlsink.PostgreSQL] = open("pgx", source)
	}
	return all
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
	for dialect, db := range databases(t) {
		t.Run(dialect.String(), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			in := topic.New[string, int]("orders").Partitions(2)
			app := stream.New("shop")
			app.Stream(in).Sink(unreliable{sqlsink.Options[string, int]{
				DB: db, Dialect: dialect, Table: "thalweg_test_totals", Key: []string{"customer"}, Columns: []string{"cents"},
				KeyOf: func(k string) []any { return []any{k} },
				Row:   func(_ string, v int) []any { return []any{v} },
			}.Sink(), rng}).As("table").Batch(7)
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
