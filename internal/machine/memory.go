// Package machine measures the part of the machine that this process may use.
package machine

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Memory is how much memory this process can have.
type Memory struct {
	// Bytes is the bound; 0 where it is not known.
	Bytes int64
	// From names the source of the bound: the machine, or the limit of a control group.
	From string
}

// What sets the bound.
const (
	fromMachine = "of this machine"
	fromGroup   = "that this process's control group (its container) may use"
	fromLimit   = "of address space that this process may have (ulimit -v)"
)

// machineMemory reads the bound from a Linux machine's files: the least of the memory of the machine, the limits of the control groups that
// the process is in, and the bound of its address space.
func machineMemory(root fs.FS) Memory {
	out := Memory{From: fromMachine}
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		out.Bytes = readTotal(b)
	}
	for _, file := range groupFiles(root) {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err == nil && n > 0 && n < math.MaxInt64/2 && (out.Bytes == 0 || n < out.Bytes) {
			out = Memory{Bytes: n, From: fromGroup}
		}
	}
	if b, err := fs.ReadFile(root, "proc/self/limits"); err == nil {
		if n := readAddressSpace(b); n > 0 && (out.Bytes == 0 || n < out.Bytes) {
			out = Memory{Bytes: n, From: fromLimit}
		}
	}
	return out
}

// readAddressSpace is the soft bound of a process's address space in /proc/self/limits, in bytes; 0 where there is none.
func readAddressSpace(limits []byte) int64 {
	lines := bufio.NewScanner(bytes.NewReader(limits))
	for lines.Scan() {
		if bounds, is := strings.CutPrefix(lines.Text(), "Max address space"); is {
			n, err := strconv.ParseInt(append(strings.Fields(bounds), "")[0], 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// readTotal is MemTotal of /proc/meminfo.
func readTotal(meminfo []byte) int64 {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "MemTotal:" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>10 {
			return 0
		}
		return n << 10
	}
	return 0
}

// groupFiles are where the limits of the process's groups may be: of its own, and of each above it, in either version.
func groupFiles(root fs.FS) []string {
	var out []string
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			out = append(out, path.Join(base, dir, file))
			if dir == "/" {
				break
			}
		}
	}
	return out
}
