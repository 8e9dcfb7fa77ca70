//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// What a program may do to itself and to nobody else. Numbers of processes, and these calls' other arguments, are 32 bits wide, so that the low half of
// an argument is all of it; pointers are checked whole.

// lastCall is the newest system call that the lists here know. Calls after it fail as if the kernel did not have them, which
// programs are prepared for.
const lastCall = unix.SYS_RSEQ_SLICE_YIELD

// Values that package unix has no names for.
const (
	ioprioWhoProcess = 1
	syncsNothing     = 0 // the errno with which a call that did nothing reports success
)

// limitToSelf permits calls that name a process only for the calling process, as 0. Landlock keeps signals from processes
// outside of the sandbox, but not these calls; with a process namespace they would reach its first process. alone says that there is such a
// namespace, whose first process no signal of the program stops.
func (p *program) limitToSelf(alone bool) {
	if !alone {
		p.keepRunning()
	}
	for _, nr := range []uint32{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR} {
		p.checkArgument(nr, 0, func(p *program) { p.actUnless(0, actErrno(unix.EPERM)) })
	}
	for _, call := range []struct{ nr, which uint32 }{{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS}, {unix.SYS_IOPRIO_SET, ioprioWhoProcess}} {
		p.checkArgument(call.nr, 0, func(p *program) {
			p.actUnless(call.which, actErrno(unix.EPERM)) // else a group of processes, or all of a user
			p.loadWord(offsetArgs + 8)
			p.actUnless(0, actErrno(unix.EPERM))
		})
	}
	// The limit of core dumps stays as it is, for 0 would start the machine's handler of them: see rlimits. A program that sets
	// it to 0 gets the answer that it is done.
	p.checkArgument(unix.SYS_PRLIMIT64, 0, func(p *program) {
		p.actUnless(0, actErrno(unix.EPERM))
		p.loadWord(offsetArgs + 8)
		p.actUnless(unix.RLIMIT_CORE, actAllow)
		p.loadWord(offsetArgs + 16)
		p.actUnless(0, actErrno(syncsNothing))
		p.loadWord(offsetArgs + 16 + 4)
		p.actUnless(0, actErrno(syncsNothing))
	})
	p.checkArgument(unix.SYS_SETRLIMIT, 0, func(p *program) { p.actWhen(unix.RLIMIT_CORE, actErrno(syncsNothing)) })
	p.checkArgument(unix.SYS_PRCTL, 0, func(p *program) { p.actWhen(unix.PR_SCHED_CORE, actErrno(unix.EPERM)) })
	// Notices of others' use of the machine's files, and a lease that keeps Weir itself from opening a file.
	p.checkArgument(unix.SYS_FCNTL, 1, func(p *program) {
		p.actWhen(unix.F_NOTIFY, actErrno(unix.EPERM))
		p.actWhen(unix.F_SETLEASE, actErrno(unix.EPERM))
		if !alone {
			p.actWhen(unix.F_SETSIG, actErrno(unix.EPERM))
		}
	})
	// They write out the whole machine's memory; a sandbox's own files are thrown away with it.
	p.actWhen(unix.SYS_SYNC, actErrno(syncsNothing))
	p.actWhen(unix.SYS_SYNCFS, actErrno(syncsNothing))
}

// stopSignals stop a process that does not handle them; the first cannot be handled.
var stopSignals = []uint32{uint32(unix.SIGSTOP), uint32(unix.SIGTSTP), uint32(unix.SIGTTIN), uint32(unix.SIGTTOU)}

// keepRunning refuses the signals that stop a process, in each call that sends signals: without a process namespace the sandbox's first
// process, which is Weir's, is among the processes that the program may signal, and answers nothing while it is stopped.
func (p *program) keepRunning() {
	for _, call := range []struct{ nr, signal uint32 }{
		{unix.SYS_KILL, 1},
		{unix.SYS_TKILL, 1},
		{unix.SYS_TGKILL, 2},
		{unix.SYS_RT_SIGQUEUEINFO, 1},
		{unix.SYS_RT_TGSIGQUEUEINFO, 2},
		{unix.SYS_PIDFD_SEND_SIGNAL, 1},
	} {
		p.checkArgument(call.nr, call.signal, func(p *program) {
			for _, signal := range stopSignals {
				p.actWhen(signal, actErrno(unix.EPERM))
			}
		})
	}
}
