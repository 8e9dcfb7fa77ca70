package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0
)

// refusedHere are calls that this architecture alone has.
var refusedHere []uint32

// attributeCallsHere are calls of attributeCalls that this architecture alone has.
var attributeCallsHere []uint32

// openCallsHere open a file by a path with their flags second, on this architecture alone.
var openCallsHere []uint32
