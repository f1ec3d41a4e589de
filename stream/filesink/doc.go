// Package filesink writes a stream to files, each record once.
//
//	app.Stream(clicks).Sink(filesink.Options[string, Click]{
//		Dir:    "/data/clicks",
//		Encode: filesink.JSON[string, Click](),
//		Suffix: ".ndjson",
//	}.Sink()).As("files")
//
// writes /data/clicks/2026-11-30/08/clicks-files-0-17.ndjson and so on: a folder for each
// hour of event time, unless Folder says otherwise, and in it files named after job,
// step, sink partition and offset of their first record.
//
// # Promise
//
// A file with such a name is whole and does not change any more: a reader needs no
// agreement with the writer. Each record is in one file, once, whatever crashes when, also
// after a power cut. The order of the records of a key is kept within a folder: file after
// file, by the number that ends the name.
//
// # How
//
// A file is written below Dir/.thalweg, and moved to its place when it is finished: at
// MaxBytes, MaxAge, or the end of the run. Before that its bytes are synced at every
// checkpoint, and how many of them count stands in a manifest, which is replaced as a whole.
// What a crash leaves beyond is cut off. That a move is due is in the manifest too, so it is
// done in the end. The file system must be able to sync, and to rename within Dir.
package filesink
