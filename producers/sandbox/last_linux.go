//go:build amd64 || arm64

package sandbox

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastSteps turn this process into a program. From the limit of memory on, which a process in Go is beyond, nothing may be allocated: all
// is prepared before.
type lastSteps struct {
	memory unix.Rlimit
	filter unix.SockFprog // of length 0 for none
	// begins is 1 where the keeper waits at fdBegun for the last step.
	begins    byte
	name      *byte
	argv, env []*byte
}

func prepareLast(name string, argv, env []string, l Limits) (*lastSteps, error) {
	s := &lastSteps{memory: lowerLimit(0, rlimit{unix.RLIMIT_AS, uint64(l.Memory)})}
	var err error
	if s.name, err = unix.BytePtrFromString(name); err != nil {
		return nil, err
	}
	if s.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	s.env, err = syscall.SlicePtrFromStrings(env)
	return s, err
}

// become sets the limit of memory and the filter of this thread, says so to the keeper, and has the program take the place of this process.
// It returns where a step fails. It is system calls alone: the check of the stack where a function begins lets another goroutine run.
//
//go:nosplit
func (s *lastSteps) become() (doing string, errno syscall.Errno) {
	_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_AS, uintptr(unsafe.Pointer(&s.memory)), 0, 0, 0)
	if errno != 0 {
		return "limit the memory of ", errno
	}
	if s.filter.Len > 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&s.filter)))
		if errno != 0 {
			return "install the filter of ", errno
		}
	}
	if s.begins > 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fdBegun, uintptr(unsafe.Pointer(&s.begins)), 1) // where it fails the keeper has ended
	}
	_, _, errno = unix.RawSyscall(unix.SYS_EXECVE,
		uintptr(unsafe.Pointer(s.name)), uintptr(unsafe.Pointer(&s.argv[0])), uintptr(unsafe.Pointer(&s.env[0])))
	return "start ", errno
}
