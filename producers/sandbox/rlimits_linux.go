//go:build amd64 || arm64

package sandbox

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// rlimit is a resource's limit, soft and hard alike, so that the program cannot raise it.
type rlimit struct {
	resource int
	value    uint64
}

// noCore is a limit of core dumps that is too small for any dump. With 0 the kernel writes no file, but if the machine has a
// handler of core dumps it starts that as root, and hands it the memory of the sandbox. With 1 it does not (core(5)).
const noCore = 1

// processLimits are the limits of a program's processes. files is how many descriptors it starts with beside the usual ones.
func (l Limits) processLimits(files int) []rlimit {
	return []rlimit{
		{unix.RLIMIT_NPROC, uint64(l.Processes)},
		{unix.RLIMIT_CPU, uint64(math.Ceil(l.CPU.Seconds()))},
		{unix.RLIMIT_FSIZE, uint64(l.FileSize)},
		{unix.RLIMIT_NOFILE, uint64(max(l.OpenFiles, 2*files+32))},
		{unix.RLIMIT_CORE, noCore},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_RTPRIO, 0},
		{unix.RLIMIT_SIGPENDING, 1024},
		{unix.RLIMIT_AS, uint64(l.Memory)},
	}
}

// setLimits limits another process, or this process where pid is 0.
func setLimits(pid int, limits []rlimit) error {
	for _, l := range limits {
		v := lowerLimit(pid, l)
		if err := unix.Prlimit(pid, l.resource, &v, nil); err != nil {
			return err
		}
	}
	return nil
}

// lowerLimit is the limit that a process may be given: a lower limit of the machine's own stands, since only root may raise a hard limit.
func lowerLimit(pid int, l rlimit) unix.Rlimit {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, l.resource, nil, &now); err == nil && now.Max < l.value {
		return unix.Rlimit{Cur: now.Max, Max: now.Max}
	}
	return unix.Rlimit{Cur: l.value, Max: l.value}
}

// limitOther limits the first process of a sandbox. Linux permits that to a process of the same real user, or with
// CAP_SYS_RESOURCE, which root in a container lacks. So a thread takes the sandbox's real user, and ends.
func limitOther(pid int, l *launch) error {
	limits := l.Limits.processLimits(len(l.Files))
	if l.Port > 0 {
		limits = slices.DeleteFunc(limits, doorSets)
	}
	if l.UID == 0 || l.Without == withoutUID {
		return setLimits(pid, limits)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		keep := ^uintptr(0)
		// These calls change this thread alone; package syscall's would change every thread.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(l.UID), keep, keep); errno != 0 {
			done <- errno
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(l.UID), keep, keep); errno != 0 {
			done <- errno
			return
		}
		done <- setLimits(pid, limits)
	}()
	return <-done
}

// killFirst has the kernel end this process and its children before all others when the machine has no memory left: a sandbox
// may take more than there is, and Weir itself must not end by that.
func killFirst(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0) // where it is refused, the kernel goes by size
}

// watchEvery is how often the files of a sandbox are counted: some ten thousand are made meanwhile.
const watchEvery = 200 * time.Millisecond

// A folder of the machine is counted file by file: every watchFoldersEvery, and so seldom that counting takes at most a
// foldersShare-th of the time.
const (
	watchFoldersEvery = time.Second
	foldersShare      = 10
)
