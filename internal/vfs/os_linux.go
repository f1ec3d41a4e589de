package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncMapsNeeded is false where a sync of the file writes mapped pages too.
const syncMapsNeeded = false

// mapsAreCoherent is true: the kernel has one copy of each page for calls and maps.
const mapsAreCoherent = true

func syncMap([]byte) error { return nil }

func syncFile(_ *os.File, fd uintptr) error {
	return retry(func() error { return unix.Fdatasync(int(fd)) })
}

func allocate(f *os.File, fd uintptr, size int64) error {
	if size <= 0 {
		return nil
	}
	err := retry(func() error { return unix.Fallocate(int(fd), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, size)
	}
	return err
}

// writeZeros reserves space past the end of the file by filling it, for file
// systems that know no other way.
func writeZeros(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// populate fails on kernels before 5.14 and past the end of the file. It is a hint.
func populate(data []byte) { _ = unix.Madvise(data, unix.MADV_POPULATE_WRITE) }
