package consumers

import "syscall"

// freeMemory is how many bytes a file system in memory has free; 0 where the folder is in none.
func freeMemory(dir string) int64 {
	const tmpfsMagic = 0x01021994
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfsMagic {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize //nolint:gosec // far below 2^63
}
