//go:build unix

package rescore

import (
	"errors"
	"os"
	"syscall"
)

// lockRows holds a file of rows until it is closed, or the process ends; false where another process holds it.
func lockRows(f *os.File) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
