//go:build unix

package compare

import (
	"errors"
	"os"
	"syscall"
)

// lockFile holds a file until it is closed, or the process ends; false where another process holds it.
func lockFile(f *os.File) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
