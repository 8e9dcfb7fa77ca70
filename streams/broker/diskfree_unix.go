//go:build unix

package broker

import "golang.org/x/sys/unix"

// diskFree is how many bytes this user can still write on the disk of a folder.
func diskFree(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // FreeBSD has them signed
}
