//go:build unix

package records

import (
	"errors"
	"os"
	"syscall"
)

// lockEvents holds an event file until it is closed, or the process ends; false where another process holds it.
func lockEvents(f *os.File) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
