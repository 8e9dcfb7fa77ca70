package cli

import (
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// leastPriority is the nice value of a process that takes the processor time that others leave.
const leastPriority = 19

// lowerPriority makes this process yield the processors to others. A thread inherits the priority of the thread that began it: the second
// look finds threads that were begun during the first. Where Linux groups processes by session, nice values count within a session alone,
// and the session has a value of its own: it is lowered where this process began the session, so that no other program is lowered with it.
func lowerPriority(log *slog.Logger) {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			log.Warn("the shadow takes processor time as its run does", "err", err)
			return
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, leastPriority) // the thread may have ended
			}
		}
	}
	if session, err := unix.Getsid(0); err == nil && session == os.Getpid() {
		// A kernel that does not group by session has no such file.
		_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(leastPriority)), 0)
	}
}
