//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// What a program may do to itself and to nobody else. Numbers of processes, and these calls' other arguments, are 32 bits wide, so that the low half of
// an argument is all of it; pointers are checked whole.

// lastCall is the newest system call that the lists here know. Those after it answer that there is none, which programs are prepared for.
const lastCall = unix.SYS_RSEQ_SLICE_YIELD

// Values that package unix has no names for.
const (
	ioprioWhoProcess = 1
	syncsNothing     = 0 // the errno with which a call that did nothing says that it is done
)

// itself lets calls that name a process name the calling one alone, as 0. Landlock keeps signals from processes outside of the sandbox, and not these;
// with a process namespace they would reach its first process.
func (p *program) itself() {
	for _, nr := range []uint32{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR} {
		p.argument(nr, 0, func(p *program) { p.unless(0, actErrno(unix.EPERM)) })
	}
	for _, call := range []struct{ nr, which uint32 }{{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS}, {unix.SYS_IOPRIO_SET, ioprioWhoProcess}} {
		p.argument(call.nr, 0, func(p *program) {
			p.unless(call.which, actErrno(unix.EPERM)) // else a group of processes, or all of a user
			p.load(offsetArgs + 8)
			p.unless(0, actErrno(unix.EPERM))
		})
	}
	// The limit of core dumps is left as it is, for 0 would start the machine's handler of them: see rlimits. Who asks for none has it, and is told so.
	p.argument(unix.SYS_PRLIMIT64, 0, func(p *program) {
		p.unless(0, actErrno(unix.EPERM))
		p.load(offsetArgs + 8)
		p.unless(unix.RLIMIT_CORE, actAllow)
		p.load(offsetArgs + 16)
		p.unless(0, actErrno(syncsNothing))
		p.load(offsetArgs + 16 + 4)
		p.unless(0, actErrno(syncsNothing))
	})
	p.argument(unix.SYS_SETRLIMIT, 0, func(p *program) { p.when(unix.RLIMIT_CORE, actErrno(syncsNothing)) })
	p.argument(unix.SYS_PRCTL, 0, func(p *program) { p.when(unix.PR_SCHED_CORE, actErrno(unix.EPERM)) })
	// Told of what others do with files, which are the machine's, and a lease that keeps Weir itself from opening one.
	p.argument(unix.SYS_FCNTL, 1, func(p *program) {
		p.when(unix.F_NOTIFY, actErrno(unix.EPERM))
		p.when(unix.F_SETLEASE, actErrno(unix.EPERM))
	})
	// They write out what the whole machine has in memory; what a sandbox writes is thrown away with it.
	p.when(unix.SYS_SYNC, actErrno(syncsNothing))
	p.when(unix.SYS_SYNCFS, actErrno(syncsNothing))
}
