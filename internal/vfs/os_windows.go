package vfs

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapsAreCoherent is false: nothing here promises it.
const mapsAreCoherent = false

// syncMapsNeeded is true: a flush of the file does not write mapped pages.
const syncMapsNeeded = true

func syncMap(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return windows.FlushViewOfFile(uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
}

func syncFile(f *os.File, _ uintptr) error { return f.Sync() }

// syncDir has nothing to do: NTFS keeps its directories in a journal.
func syncDir(dir string) error {
	_, err := os.Stat(dir)
	return err
}

func allocate(f *os.File, _ uintptr, size int64) error {
	info, err := f.Stat()
	if err != nil || size <= info.Size() {
		return err
	}
	return f.Truncate(size)
}

func mapFile(fd uintptr, size int, writable bool) ([]byte, error) {
	protection, access := uint32(windows.PAGE_READONLY), uint32(windows.FILE_MAP_READ)
	if writable {
		protection, access = windows.PAGE_READWRITE, windows.FILE_MAP_READ|windows.FILE_MAP_WRITE
	}
	section, err := windows.CreateFileMapping(windows.Handle(fd), nil, protection, uint32(uint64(size)>>32), uint32(size), nil)
	if err != nil {
		return nil, err
	}
	// The view keeps the section.
	defer windows.CloseHandle(section)
	address, err := windows.MapViewOfFile(section, access, 0, 0, uintptr(size))
	if err != nil {
		return nil, err
	}
	// address is no Go pointer, so the collector neither moves nor frees it.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), size), nil
}

func unmapFile(data []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(&data[0])))
}

func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

func populate([]byte) {}
