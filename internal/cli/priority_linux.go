package cli

import (
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// leastPriority is the nice value of a process that takes the processor time that others leave.
	leastPriority = 19
	// ioprio_set(2): the priority of a thread is set, to the class that the disk serves when it has nothing else to do.
	ioprioThread, ioprioIdle = 1, 3 << 13
)

// lowerPriority makes this process yield processors and disk to others. A thread inherits the priority of the thread that began it: the
// second look finds threads that were begun during the first. Where Linux groups processes by session, the priorities of threads count
// within a session alone, and the session has a nice value of its own: it is lowered where this process began the session, so that no other
// program is lowered with it.
func lowerPriority(log *slog.Logger) {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			log.Warn("the shadow takes processor time as its run does", "err", err)
			return
		}
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				lowerThread(id)
			}
		}
	}
	if beganSession() {
		// A kernel that does not group by session has no such file.
		_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(leastPriority)), 0)
	}
}

// lowerThread gives a thread the least priority. It may have ended, and a sandbox may refuse a part.
func lowerThread(id int) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, id, leastPriority)
	_ = unix.SchedSetAttr(id, &unix.SchedAttr{Policy: unix.SCHED_IDLE, Nice: leastPriority}, 0)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioThread, uintptr(id), ioprioIdle)
}

// beganSession reports whether this process began its session.
func beganSession() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == os.Getpid()
}
