package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
)

// The files that a comparison keeps in a run's folder.
const (
	outputFile = "compare.log"
	spentFile  = "compare.json"
)

// runBytes is the memory that a run of small models is reckoned at, and runCores the processor cores that it keeps busy.
const (
	runBytes = 2 << 30
	runCores = 2
)

// ParallelRuns is how many runs fit a machine: by its memory, of which 0 is unknown, and its cores; at least 1.
func ParallelRuns(memory machine.Memory, cores int) int {
	n := max(1, cores/runCores)
	if memory.Bytes > 0 {
		n = min(n, int(memory.Bytes/runBytes))
	}
	return max(1, n)
}

// Processes trains each run in a process of its own, by weir up.
type Processes struct {
	// Program is the command line that is weir.
	Program []string
	// Environ is the environment of the processes. Variables that set keys are left out.
	Environ []string
	// Parallel is how many run at once: each gets its share of the cores, unless GOMAXPROCS is set.
	Parallel int
	// Grace is how long a process may take to end in order.
	Grace time.Duration
}

// Spent is what the processes of a run have used, over all calls that ended in order.
type Spent struct {
	ProcessorSeconds float64 `json:"processor_seconds"`
	WallSeconds      float64 `json:"wall_seconds"`
}

// TrainRun runs weir up to its end.
func (p *Processes) TrainRun(ctx context.Context, r *Run) (err error) {
	if err := os.MkdirAll(r.Folder, 0o755); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(r.Folder, outputFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the output of the run: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	tail := child.NewTail(4096)
	cmd := exec.Command(p.Program[0], append(p.Program[1:len(p.Program):len(p.Program)], r.arguments()...)...)
	cmd.Env, cmd.WaitDelay = p.processEnviron(), 5*time.Second
	both := io.MultiWriter(tail, log)
	cmd.Stdout, cmd.Stderr = both, both
	began := time.Now()
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start weir up: %w", err)
	}
	p.awaitEnd(ctx, process)
	if err := addSpent(r, cmd.ProcessState, time.Since(began)); err != nil {
		return err
	}
	return describeEnd(ctx, process, tail.Lines())
}

// processEnviron leaves out the variables that set keys.
func (p *Processes) processEnviron() []string {
	var out []string
	limited := false
	for _, v := range p.Environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, config.Prefix) && strings.Contains(name, "__") {
			continue
		}
		limited = limited || name == "GOMAXPROCS"
		out = append(out, v)
	}
	if !limited && p.Parallel > 1 {
		out = append(out, "GOMAXPROCS="+strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/p.Parallel)))
	}
	return out
}

// awaitEnd waits for the end of a process, which is asked to end in order when ctx ends, and is killed after the grace.
func (p *Processes) awaitEnd(ctx context.Context, process *child.Process) {
	select {
	case <-process.Done():
		return
	case <-ctx.Done():
	}
	process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(p.Grace)
	defer patience.Stop()
	select {
	case <-process.Done():
	case <-patience.C:
		process.Kill()
	}
}

// describeEnd is nil after a good end, and after an end that was asked for.
func describeEnd(ctx context.Context, process *child.Process, lastWords string) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // how it ended follows from the interruption
	}
	err := process.Err()
	if err == nil {
		return nil
	}
	if strings.Contains(lastWords, syscall.ENOSPC.Error()) {
		return fmt.Errorf("%w: %s", syscall.ENOSPC, lastLines(lastWords, 3))
	}
	return &FailedError{How: "weir up ended with " + err.Error(), LastWords: lastLines(lastWords, 8)}
}

// lastLines are the last lines of a text.
func lastLines(text string, most int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// readSpent is zero where nothing is noted.
func readSpent(r *Run) (s Spent, err error) {
	text, err := os.ReadFile(filepath.Join(r.Folder, spentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("what run %s has spent, in %s: %w", r.Name, spentFile, err)
	}
	return s, nil
}

// addSpent adds what a process used to what the run has spent.
func addSpent(r *Run, state *os.ProcessState, took time.Duration) error {
	s, err := readSpent(r)
	if err != nil {
		return err
	}
	s.ProcessorSeconds += (state.UserTime() + state.SystemTime()).Seconds()
	s.WallSeconds += took.Seconds()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.Folder, spentFile), append(text, '\n'))
}

// writeFile replaces a file whole.
func writeFile(path string, text []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
