// Package doctor looks at a machine with the eyes of a run: what the run's configuration needs is there, or it is said what
// to do. The checks are pure: they see the machine through an interface.
package doctor

import (
	"context"
	"fmt"
	"time"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts, from best to worst.
const (
	// OK is as it should be.
	OK Verdict = "ok"
	// Unused is a lack that the configuration does not need.
	Unused Verdict = "unused"
	// Warn is a lack that a run works with, and badly.
	Warn Verdict = "warn"
	// Fail is a lack of something that the configuration needs.
	Fail Verdict = "fail"
)

// Line is a check.
type Line struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Detail is the finding.
	Detail string `json:"detail"`
	// Remedy is the cure; "" where none is needed.
	Remedy string `json:"remedy,omitempty"`
}

// Needs are the needs of a configuration.
type Needs struct {
	// Python is the interpreter that is configured; "" is the first that has PyTorch.
	Python string
	// Torch, CUDA, VLLM and SGLang are whether the run uses them. VLLM asks for CUDA too, unless the vLLM is built for processors.
	Torch, CUDA, VLLM, SGLang bool
	// Sandbox is whether tools run code in a sandbox.
	Sandbox bool
	// Broker is the address of a broker; "" is a broker in the process of the run.
	Broker string
	// Memory and Disk are the model's needs, in bytes; 0 where they are not known.
	Memory, Disk int64
	// Dir is the run's folder.
	Dir string
}

// Machine is the machine as the checks see it.
type Machine interface {
	// Getenv is a variable of the environment.
	Getenv(key string) string
	// LookPath finds a program.
	LookPath(name string) (string, error)
	// Run runs a program with an environment of PATH and HOME alone and returns its output; its error has what it wrote to stderr.
	Run(ctx context.Context, name string, args ...string) (string, error)
	// ReadFile reads a file of the system.
	ReadFile(path string) ([]byte, error)
	// Disk is the free and the whole size of the disk on which a path lies, or would lie, in bytes.
	Disk(path string) (free, size int64, err error)
	// User is the id of the process's user; -1 where there is none.
	User() int
	// Clock says whether the system's clock is kept right by another; known is false where the system does not say.
	Clock() (synchronized, known bool)
	// Broker asks a broker for its name and version.
	Broker(ctx context.Context, address string) (Broker, error)
}

// Broker is a broker by its own account.
type Broker struct {
	// Version is the server's, OldestVersion the least that Weir works with.
	Version, OldestVersion string

	JetStream  bool
	MaxPayload int64
	RoundTrip  time.Duration
	// Ahead is how far its clock is before this machine's; known only where it has a stream that may be asked.
	Ahead      time.Duration
	AheadKnown bool
}

// Examine makes all checks, in an order that does not change.
func Examine(ctx context.Context, m Machine, n Needs) []Line {
	e := &examination{ctx: ctx, m: m, n: n}
	e.examinePython()
	e.examineDevices()
	e.examineMemory()
	e.examineServers()
	e.examineDisk()
	e.examineSharedMemory()
	e.examineSandbox()
	e.examineBroker()
	e.examineClock()
	return e.lines
}

// Failed says whether the configuration cannot be run.
func Failed(lines []Line) bool {
	for _, l := range lines {
		if l.Verdict == Fail {
			return true
		}
	}
	return false
}

type examination struct {
	ctx   context.Context //nolint:containedctx // of one call
	m     Machine
	n     Needs
	lines []Line
	// stack has the packages of the Python that was found; nil where there is no Python.
	stack *stack
}

func (e *examination) addFinding(check string, v Verdict, remedy, format string, args ...any) {
	e.lines = append(e.lines, Line{Check: check, Verdict: v, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (e *examination) addGood(check, format string, args ...any) {
	e.addFinding(check, OK, "", format, args...)
}

// addLack adds a Fail where the configuration needs the lacking thing, and Unused elsewhere.
func (e *examination) addLack(check string, needed bool, remedy, format string, args ...any) {
	if needed {
		e.addFinding(check, Fail, remedy, format, args...)
		return
	}
	e.addFinding(check, Unused, "", format, args...)
}

// formatBytes is a number of bytes for people.
func formatBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
