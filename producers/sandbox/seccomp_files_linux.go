//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// machineFiles says what holds the files of the machine, where no mounts do: calls that Landlock does not govern are refused by the filter.
type machineFiles struct {
	// landlock is the version of Landlock that restricts the program; 0 is a program that has mounts of its own.
	landlock int
	// owned says that the program has Weir's user, the owner of all files of Weir.
	owned bool
}

// truncateVersion is the version from which on Landlock governs the truncation of files.
const truncateVersion = 3

// Bits of the flags of an open file.
const (
	// accessNothing is the access mode that asks for the right to read and write, and opens for neither: for ioctl(2) alone.
	accessNothing = unix.O_ACCMODE
	typeOfRequest = 0xff00
	requestsOfTTY = 'T' << 8
)

// limitFiles refuses the calls that reach files of the machine past Landlock.
func (p *program) limitFiles(f machineFiles) {
	if f.landlock == 0 {
		return
	}
	if f.owned {
		p.keepAttributes()
	}
	p.limitOpen(unix.SYS_OPENAT, 2, f)
	for _, nr := range openCallsHere {
		p.limitOpen(nr, 1, f)
	}
	// Its flags lie in memory, which a filter cannot read: programs then use openat.
	p.actWhen(unix.SYS_OPENAT2, actErrno(unix.ENOSYS))
	if f.landlock < truncateVersion {
		p.actWhen(unix.SYS_TRUNCATE, actErrno(unix.EPERM)) // by a path; an open file has been through Landlock
	}
}

// limitRequests lets requests of ioctl(2) to terminals, pipes and sockets pass. Requests to devices
// Landlock governs since version 5, and requests to file systems never: they change flags of files that may only be
// read, and make and delete volumes.
func (p *program) limitRequests() {
	p.andWord(typeOfRequest)
	p.actUnless(requestsOfTTY, actErrno(unix.ENOTTY))
}

// limitOpen refuses to open a file so that Landlock sees neither reading nor writing, and to truncate a file that is opened to be read.
func (p *program) limitOpen(nr, flags uint32, f machineFiles) {
	p.checkArgument(nr, flags, func(p *program) {
		p.andWord(unix.O_ACCMODE | unix.O_TRUNC)
		p.actWhen(accessNothing, actErrno(unix.EACCES))
		p.actWhen(accessNothing|unix.O_TRUNC, actErrno(unix.EACCES))
		if f.landlock < truncateVersion {
			p.actWhen(unix.O_RDONLY|unix.O_TRUNC, actErrno(unix.EACCES))
		}
	})
}

// attributeCalls change modes, owners and times. Landlock governs none of them, by a path or by a descriptor that may only read. They are
// answered as done: programs that unpack or copy files make them, and end where they fail.
func attributeCalls() []uint32 {
	return append([]uint32{
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT, unix.SYS_FILE_SETATTR,
	}, attributeCallsHere...)
}

// extendedCalls change extended attributes. They are answered as by a file system that has none.
var extendedCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
}

func (p *program) keepAttributes() {
	for _, nr := range attributeCalls() {
		p.actWhen(nr, actErrno(0))
	}
	for _, nr := range extendedCalls {
		p.actWhen(nr, actErrno(unix.ENOTSUP))
	}
}
