package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapsAreCoherent is false: nothing here promises it.
const mapsAreCoherent = false

// syncMapsNeeded is true: a sync of the file need not write mapped pages.
const syncMapsNeeded = true

func syncMap(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return unix.Msync(data, unix.MS_SYNC)
}

// syncFile also empties the disk's cache (F_FULLFSYNC).
func syncFile(f *os.File, _ uintptr) error { return f.Sync() }

func allocate(f *os.File, fd uintptr, size int64) error {
	info, err := f.Stat()
	if err != nil || size <= info.Size() {
		return err
	}
	store := unix.Fstore_t{
		Flags:   unix.F_ALLOCATEALL,
		Posmode: unix.F_PEOFPOSMODE,
		Length:  size - info.Size(),
	}
	if err := retry(func() error { return unix.FcntlFstore(fd, unix.F_PREALLOCATE, &store) }); err != nil {
		return err
	}
	return f.Truncate(size)
}

func populate([]byte) {}
