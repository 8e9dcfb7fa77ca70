// Package memory says how much memory this process holds, and keeps the garbage that is not collected yet small beside
// large weights.
package memory

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// headroom is how much garbage may lie beside live memory before it is collected, where that is less than the Go runtime's own
// bound, which is as much again.
const headroom = 256 << 20

// Percent is the GOGC of a process that holds so many bytes of weights: at least 10, as memory without pointers costs little to
// collect, and at most Go's default of 100.
func Percent(live int64) int {
	if live <= headroom {
		return 100
	}
	return max(int(100*headroom/live), 10)
}

// Bound lowers the process's GOGC for so many bytes of weights and returns a function that puts it back. Where the user has set GOGC or
// GOMEMLIMIT, or it is lower already, it changes nothing.
func Bound(live int64) (undo func()) {
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(set) != "" {
			return func() {}
		}
	}
	want := Percent(live)
	before := debug.SetGCPercent(want)
	if before >= 0 && before < want {
		debug.SetGCPercent(before)
	}
	return func() { debug.SetGCPercent(before) }
}

// Resident is how many bytes of memory of its own the process has: files that it has mapped, which the system takes back as
// it needs, do not count. Where the system does not tell the number, it is the Go runtime's.
func Resident() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		if n, ok := anonymousMemory(status); ok {
			return n
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// anonymousMemory reads the kilobytes of RssAnon and RssShmem.
func anonymousMemory(status []byte) (n int64, found bool) {
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if key != "RssAnon" && key != "RssShmem" {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, false
		}
		n, found = n+kb<<10, true
	}
	return n, found
}

// Settle collects garbage, gives it back to the system, and returns the memory that is then resident.
func Settle() int64 {
	debug.FreeOSMemory()
	return Resident()
}

// interval is how often Watch looks.
const interval = 2 * time.Millisecond

// Watch measures the resident memory until the function that it returns is called, which returns the most.
func Watch() (stop func() int64) {
	end, most := make(chan struct{}), make(chan int64)
	go func() {
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		peak := Resident()
		for {
			select {
			case <-ticks.C:
				peak = max(peak, Resident())
			case <-end:
				most <- max(peak, Resident())
				return
			}
		}
	}()
	return func() int64 {
		close(end)
		return <-most
	}
}
