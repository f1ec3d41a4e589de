package bench

import (
	"errors"
	"os"
	"syscall"
)

// syncedFile is a file of written space that is written again and synced: what disks are
// quickest at.
type syncedFile struct {
	*os.File
	at int64
}

const syncedFileBytes = 16 << 20

func newSyncedFile(name string) (*syncedFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, syncedFileBytes))
	if err := errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &syncedFile{File: f}, nil
}

// write writes the next bytes of the file, from its beginning again after its end.
func (f *syncedFile) write(b []byte) error {
	if f.at+int64(len(b)) > syncedFileBytes {
		f.at = 0
	}
	_, err := f.WriteAt(b, f.at)
	f.at += int64(len(b))
	return err
}

func (f *syncedFile) sync() error { return syscall.Fdatasync(int(f.Fd())) }
