//go:build unix

package broker

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive lock that ends with the process, however it ends.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
