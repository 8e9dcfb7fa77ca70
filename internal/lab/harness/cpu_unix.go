//go:build unix

package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the processor time that this process has used so far.
func CPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
