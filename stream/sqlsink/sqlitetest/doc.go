// Package sqlitetest has no code but the tests of package sqlsink that need a database. It is a
// module of its own, so that no driver is among what users of the library load.
package sqlitetest
