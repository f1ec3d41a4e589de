package filesink

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream"
)

const (
	// DefaultMaxBytes is the size at which a file is finished.
	DefaultMaxBytes = 128 << 20
	// DefaultMaxAge is how long a file is written to.
	DefaultMaxAge = time.Hour
	// DefaultMaxOpen is how many files of a sink partition are written to at the same time.
	DefaultMaxOpen = 64
)

// Options describes a file sink. Dir and Encode are needed.
type Options[K, V any] struct {
	// Dir is where the files go. It may be shared by any number of sinks.
	Dir string

	// Encode appends a record to dst; what it appends is written as it is. Where it appends
	// nothing the record is in no file. See Text, JSON and CSV.
	Encode func(dst []byte, r stream.Output[K, V]) ([]byte, error)

	// Header begins every file. Nil is nothing.
	Header []byte

	// Suffix ends the name of every file, such as ".csv".
	Suffix string

	// Folder is the folder below Dir that a record belongs to, with '/' between levels
	// and "" for Dir itself. Nil is ByTime("2006-01-02/15"): a folder for each hour of
	// event time, in UTC.
	Folder func(r stream.Output[K, V]) string

	// MaxBytes is the size at which a file is finished. Zero means DefaultMaxBytes.
	MaxBytes int64

	// MaxAge is how long after its first record a file is finished, by the clock. Zero means
	// DefaultMaxAge, negative never.
	MaxAge time.Duration

	// MaxOpen bounds the files of a sink partition that are written to at the same time,
	// each in a folder of its own: beyond it the oldest is finished. Zero means
	// DefaultMaxOpen.
	MaxOpen int

	// FS is the file system. Nil is that of the operating system.
	FS vfs.FS
}

// Sink is the sink, to be given to Stream.Sink. Mistakes in the options are told when the job
// starts.
func (o Options[K, V]) Sink() stream.Sink[K, V] {
	return stream.PerPartition[K, V](func(p stream.SinkPartition) (stream.Sink[K, V], error) {
		o, err := o.withDefaults()
		if err != nil {
			return nil, err
		}
		return open(o, p), nil
	})
}

func (o Options[K, V]) withDefaults() (Options[K, V], error) {
	switch {
	case o.Dir == "":
		return o, errors.New("filesink: Options.Dir is empty")
	case o.Encode == nil:
		return o, errors.New("filesink: Options.Encode is nil: use Text, JSON, CSV or a function of your own")
	case strings.ContainsAny(o.Suffix, `/\`):
		return o, fmt.Errorf("filesink: Options.Suffix %q has a slash", o.Suffix)
	case o.MaxBytes < 0:
		return o, fmt.Errorf("filesink: Options.MaxBytes is negative: %d", o.MaxBytes)
	case o.MaxOpen < 0:
		return o, fmt.Errorf("filesink: Options.MaxOpen is negative: %d", o.MaxOpen)
	}
	o.Dir = path.Clean(filepath.ToSlash(o.Dir))
	if o.Folder == nil {
		o.Folder = ByTime[K, V]("2006-01-02/15")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = DefaultMaxOpen
	}
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	return o, nil
}

// checkFolder refuses what would lead out of Dir, or to where unfinished files are.
func checkFolder(folder string) error {
	if folder == "" {
		return nil
	}
	clean := path.Clean(folder)
	if clean != folder || path.IsAbs(folder) || strings.Contains(folder, `\`) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") ||
		clean == unfinished || strings.HasPrefix(clean, unfinished+"/") {
		return fmt.Errorf("filesink: %q is no folder below Dir: use names with '/' between them", folder)
	}
	return nil
}
