package hf

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchangeFolders swaps two folders in one step, or in three where the file system cannot.
func exchangeFolders(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return exchangeInSteps(a, b)
	}
	return err
}
