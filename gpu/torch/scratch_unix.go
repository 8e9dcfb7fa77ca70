//go:build unix

package torch

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes a file and holds it until unlock or the end of the process, however it ends.
func lockFile(path string) (unlock func() error, err error) {
	return lockOpen(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))
}

// lockExisting holds a file that is there, unless another process does.
func lockExisting(path string) (unlock func() error, err error) {
	return lockOpen(os.OpenFile(path, os.O_RDWR, 0))
}

func lockOpen(f *os.File, err error) (func() error, error) {
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
