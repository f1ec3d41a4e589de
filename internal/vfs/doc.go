// Package vfs is the file system the log and the store follower write through.
//
// The operating system's files, OS, are one implementation; Mem is the other. Mem
// keeps a synced and a current image of every page, can fail, fill up or stop at
// any operation, and answers what a machine finds after a power cut or a killed
// process. Both give files that can be mapped.
//
// # What is durable when
//
//	a file's bytes and length   after File.Sync
//	a name, and its absence     after SyncDir of the directory that holds it
//
// Neither implies the other: a new file needs both, a new directory needs SyncDir
// of its parent. Until then a crash may keep or lose each page, each length and
// each entry on its own; only Rename is atomic. After a failed Sync nothing written
// before it is certain, whatever a later Sync returns.
//
// # Lock order
//
// Each type has one mutex; none is held while a hook or a caller's function runs.
package vfs
