//go:build unix

package doctor

import "golang.org/x/sys/unix"

// freeDisk returns the bytes that this user can still write on the disk of an existing path, and the disk's size.
func freeDisk(path string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil //nolint:unconvert // systems differ in their types
}
