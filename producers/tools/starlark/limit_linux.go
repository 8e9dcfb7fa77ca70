package starlark

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// limitProcess bounds this process by the kernel's means: memory, files, their size and core files. The processor's time is bounded by
// steps and by the host, which kills.
func limitProcess(memory int64) error {
	for _, l := range []struct {
		name     string
		resource int
		most     uint64
	}{
		{"core files", unix.RLIMIT_CORE, 0},
		{"the size of files", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, 16},
		{"memory", unix.RLIMIT_DATA, uint64(memory) * 2},
	} {
		if l.resource == unix.RLIMIT_DATA && raceDetector {
			continue // its shadow memory is counted, and is a multiple of the program's
		}
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	return nil
}
