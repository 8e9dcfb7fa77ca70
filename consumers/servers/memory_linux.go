package servers

import "syscall"

// tmpfsMagic is the type of a file system in memory.
const tmpfsMagic = 0x01021994

// isInMemory reports whether a folder lies in a file system in memory.
func isInMemory(dir string) bool {
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Type == tmpfsMagic
}
