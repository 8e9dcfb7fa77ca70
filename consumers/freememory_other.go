//go:build !linux

package consumers

// freeMemory is how many bytes a file system in memory has free; 0 where the folder is in none.
func freeMemory(string) int64 { return 0 }
