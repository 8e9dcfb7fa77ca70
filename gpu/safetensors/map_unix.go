//go:build unix

package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file's bytes for reading; nil where that cannot be done, and the file is then read.
func mapFile(f *os.File, size int64) []byte {
	if size <= 0 || int64(int(size)) != size {
		return nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return data
}

func unmapFile(data []byte) error {
	if data == nil {
		return nil
	}
	return unix.Munmap(data)
}

// letGo releases a part of a mapped file that has been read: its pages leave this process's memory and stay in the system's
// cache.
func letGo(data []byte, begin, end int64) {
	page := int64(os.Getpagesize())
	begin = (begin + page - 1) / page * page
	end = end / page * page
	if data != nil && begin < end {
		_ = unix.Madvise(data[begin:end], unix.MADV_DONTNEED) // advice
	}
}
