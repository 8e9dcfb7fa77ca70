//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// The filter is a list of refused calls, on top of namespaces and dropped capabilities. Code in a sandbox has no use for these
// calls, and they reach parts of the kernel which namespaces do not divide, or which have had holes.

// refusedCalls answer EPERM.
func refusedCalls() []uint32 {
	calls := []uint32{
		// Files that belong to nobody's name space: mounts, handles, memory files that no size limit counts.
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR,
		unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
		unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_TREE_ATTR, unix.SYS_LISTNS,
		// Calls that observe others' use of the machine's files. Instances of inotify are counted for Weir's user, and run out
		// for all sandboxes at once.
		unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_CACHESTAT,
		// System V and POSIX message queues, semaphores and shared memory.
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
		unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
		// Namespaces.
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		// Other processes.
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_PROCESS_MRELEASE, unix.SYS_GET_ROBUST_LIST,
		// Large interfaces of the kernel with a history.
		unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE,
		unix.SYS_PERSONALITY,
		unix.SYS_MLOCK, unix.SYS_MLOCK2, unix.SYS_MLOCKALL,
		// The machine itself.
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	}
	calls = append(calls, refusedHere...)
	slices.Sort(calls)
	return slices.Compact(calls)
}

// namespaceFlags are the flags of clone(2) that make namespaces. CLONE_NEWTIME is not among them: clone reads its bit as part
// of a signal's number.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data; arguments are 64 bits wide and little-endian on both architectures, so that the low half comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// typeOfSocket are the bits of a socket's type that are no flags.
const typeOfSocket = 0xf

// Actions of a filter.
const (
	actKill  = unix.SECCOMP_RET_KILL_PROCESS
	actAllow = unix.SECCOMP_RET_ALLOW
)

func actErrno(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// sockets are the sockets that a program may make. They reach its own network namespace alone, or the machine's where it has
// none.
type sockets struct {
	// unix permits the family AF_UNIX; loopback permits TCP over IPv4, where a namespace has no interface but its own loopback.
	unix, loopback bool
}

// newFilter is the program.
func newFilter(s sockets, f machineFiles) []unix.SockFilter {
	var p program
	p.loadWord(offsetArch)
	p.actUnless(auditArch, actKill)
	p.loadWord(offsetNumber)
	if x32Bit != 0 {
		p.atLeast(x32Bit, actKill) // the x32 calls have numbers of their own: none of them is checked below
	}
	p.atLeast(lastCall+1, actErrno(unix.ENOSYS))
	for _, nr := range refusedCalls() {
		p.actWhen(nr, actErrno(unix.EPERM))
	}
	p.limitFiles(f)
	// The flags of clone3 lie in memory, which a filter cannot read: the C library then uses clone.
	p.actWhen(unix.SYS_CLONE3, actErrno(unix.ENOSYS))
	p.checkArgument(unix.SYS_CLONE, 0, func(p *program) { p.anyBit(namespaceFlags, actErrno(unix.EPERM)) })
	p.checkArgument(unix.SYS_SOCKET, 0, func(p *program) {
		if s.unix {
			p.actWhen(unix.AF_UNIX, actAllow)
		}
		if !s.loopback {
			p.always(actErrno(unix.EAFNOSUPPORT))
			return
		}
		p.actUnless(unix.AF_INET, actErrno(unix.EAFNOSUPPORT))
		p.loadWord(offsetArgs + 8)
		p.andWord(typeOfSocket)
		p.actUnless(unix.SOCK_STREAM, actErrno(unix.ESOCKTNOSUPPORT))
		p.loadWord(offsetArgs + 16)
		p.actWhen(unix.IPPROTO_IP, actAllow) // TCP
		p.actUnless(unix.IPPROTO_TCP, actErrno(unix.EPROTONOSUPPORT))
	})
	if s.loopback {
		p.checkArgument(unix.SYS_SETSOCKOPT, 1, func(p *program) {
			p.actUnless(unix.IPPROTO_TCP, actAllow)
			p.loadWord(offsetArgs + 16)
			p.actWhen(unix.TCP_ULP, actErrno(unix.EPERM)) // protocols on top of TCP in the kernel, which loads them
		})
	}
	p.checkArgument(unix.SYS_SOCKETPAIR, 0, func(p *program) {
		p.actUnless(unix.AF_UNIX, actErrno(unix.EAFNOSUPPORT))
		p.loadWord(offsetArgs + 8)
		p.andWord(typeOfSocket)
		p.actWhen(unix.SOCK_STREAM, actAllow)
		p.actWhen(unix.SOCK_SEQPACKET, actAllow)
		p.always(actErrno(unix.EPROTONOSUPPORT)) // an end of a pair of datagram sockets sends to every socket that has a path
	})
	// The low half alone: the kernel cuts the request to 32 bits, so TIOCSTI + 2^32 is TIOCSTI too (CVE-2019-10063).
	p.checkArgument(unix.SYS_IOCTL, 1, func(p *program) {
		p.actWhen(unix.TIOCSTI, actErrno(unix.EPERM))
		p.actWhen(unix.TIOCLINUX, actErrno(unix.EPERM))
		p.actWhen(unix.TIOCSETD, actErrno(unix.EPERM)) // the kernel loads the line discipline that it names
		if f.landlock > 0 {
			p.limitRequests()
		}
	})
	p.limitToSelf(f.landlock == 0)
	p.always(actAllow)
	return p
}

// program is a classic BPF program under construction.
type program []unix.SockFilter

func (p *program) addInstruction(code uint16, k uint32, jt, jf uint8) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (p *program) loadWord(offset uint32) {
	p.addInstruction(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0)
}

func (p *program) andWord(mask uint32) {
	p.addInstruction(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
}

func (p *program) always(action uint32) { p.addInstruction(unix.BPF_RET|unix.BPF_K, action, 0, 0) }

func (p *program) actWhen(v, action uint32) {
	p.addInstruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, 0, 1)
	p.always(action)
}

func (p *program) actUnless(v, action uint32) {
	p.addInstruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, 1, 0)
	p.always(action)
}

func (p *program) atLeast(v, action uint32) {
	p.addInstruction(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, v, 0, 1)
	p.always(action)
}

func (p *program) anyBit(bits, action uint32) {
	p.addInstruction(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, bits, 0, 1)
	p.always(action)
}

// checkArgument checks the low half of a call's argument, and permits the call where the checks match nothing.
func (p *program) checkArgument(nr uint32, index uint32, checks func(*program)) {
	var body program
	body.loadWord(offsetArgs + 8*index)
	checks(&body)
	body.always(actAllow)
	p.addInstruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, nr, 0, uint8(len(body)))
	*p = append(*p, body...)
}

// encodeFilter is the program as bwrap reads it: an array of struct sock_filter.
func encodeFilter(filter []unix.SockFilter) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, filter) // into memory
	return b.Bytes()
}
