package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc: 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// ProcessCPUTime is the processor time that a process has used; 0 where the system has no /proc.
func ProcessCPUTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// Behind the name, which may hold anything, state is the first field, user and system time are the 12th and 13th.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64) // a field that is no number counts as 0
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * tick
}

// ResidentBytes is the memory of a process in bytes, at its highest; 0 where the system has no /proc.
func ResidentBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// MachineCPUTime is the processor time that everybody on this machine has used, and how much there was.
func MachineCPUTime() (used, all time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || i > 8 { // the name, and guests, which user time holds too
			continue
		}
		all += time.Duration(n) * tick
		if i != 4 && i != 5 { // idle, and idle while a disk works
			used += time.Duration(n) * tick
		}
	}
	return used, all
}
