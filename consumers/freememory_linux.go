package consumers

import "syscall"

// readMemory reads the state of a file system in memory; nil where the folder is in none.
func readMemory(dir string) *syscall.Statfs_t {
	const tmpfsMagic = 0x01021994
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfsMagic {
		return nil
	}
	return &fs
}

// InMemory reports whether a folder lies in a file system in memory.
func InMemory(dir string) bool { return readMemory(dir) != nil }

// freeMemory is how many bytes a file system in memory has free; 0 where the folder is in none.
func freeMemory(dir string) int64 {
	fs := readMemory(dir)
	if fs == nil {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize //nolint:gosec // far below 2^63
}
