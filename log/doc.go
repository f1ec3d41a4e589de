// Package log stores partitions as append-only sequences of record batches in segment files.
package log
