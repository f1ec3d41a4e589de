// Package sqlsink keeps a table of an SQL database as a stream says: the newest value of
// each key is its row, a record without a value deletes it.
//
//	app.Stream(orders).GroupBy(customer).Aggregate(Total.Add).ToStream().Sink(sqlsink.Options[string, Total]{
//		DB:      db,
//		Dialect: sqlsink.PostgreSQL,
//		Table:   "totals",
//		Key:     []string{"customer"},
//		Columns: []string{"orders", "cents"},
//		KeyOf:   func(customer string) []any { return []any{customer} },
//		Row:     func(_ string, t Total) []any { return []any{t.Orders, t.Cents} },
//	}.Sink()).As("totals-table")
//
// # Promise
//
// The rows are those of the newest record of each key that was handed over. A batch is one
// transaction of the database: all of it is there, or nothing. After an error, a
// crash or an outcome that nobody knows the same records come again, in their order; writing
// them again changes nothing but what came after them, which comes again too. So a row may
// for a moment be as it was before the crash, and in the end each record counts once.
//
// The table is the program's own: it makes it, with a primary key or a unique index on the columns
// of the key. Nothing else is kept in the database. Two jobs, or two steps, should not write the
// same rows: whichever writes last has the row.
//
// The package imports no driver. Its tests use SQLite, and PostgreSQL where a server is installed.
package sqlsink
