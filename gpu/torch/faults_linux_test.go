package torch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/torch"
)

// patience is how long a test waits for what must happen: a guard against hanging, and no measure.
const patience = 2 * time.Minute

func running(pid int) bool { return syscall.Kill(pid, 0) == nil }

func opened(t testing.TB, b torch.Backend, cfg gpu.Config, folder string) *torch.Engine {
	t.Helper()
	e, ok := engineOf(t, b, cfg).(*torch.Engine)
	require.True(t, ok)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Import(t.Context(), folder))
	return e
}

// requireLost checks that an engine has no processes and says so until it is told that its caller knows, and that it is as good as a
// new one then.
func requireLost(t testing.TB, e *torch.Engine, pids []int, folder string) {
	t.Helper()
	for _, pid := range pids {
		require.False(t, running(pid), "process %d is left", pid)
	}
	require.Empty(t, e.PIDs())
	_, err := e.Step(t.Context(), stepOptions)
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorIs(t, e.ResetOptimizer(t.Context()), gpu.ErrLost)
	require.NoError(t, e.Discard(t.Context()))
	require.NoError(t, e.Import(t.Context(), folder))
	parts, _ := someParts(e.Config())
	require.NoError(t, e.Evaluate(t.Context(), parts, func(int, *gpu.Outputs) error { return nil }))
}

// A rank is killed while the ranks wait for the loss's gradient: one error names it, and nothing is left.
func TestAKilledRankEndsTheGroup(t *testing.T) {
	needPython(t)
	cfg := families()["qwen3"]
	folder := written(t, cfg)
	e := opened(t, backend(2), cfg, folder)
	pids := e.PIDs()
	require.Len(t, pids, 2)
	parts, up := someParts(cfg)
	before, err := e.Export(t.Context(), filepath.Join(t.TempDir(), "before"), gpu.ExportOptions{})
	require.NoError(t, err)
	_, err = before.Wait(t.Context())
	require.NoError(t, err)
	err = e.Accumulate(t.Context(), parts, func(i int, _ *gpu.Outputs) (*gpu.Gradients, error) {
		if i == 3 {
			require.NoError(t, syscall.Kill(pids[1], syscall.SIGKILL))
		}
		return up[i], nil
	})
	if err == nil { // the ranks had done their work
		_, err = e.Step(t.Context(), stepOptions)
	}
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("rank 1 (pid %d) was killed by signal 9", pids[1]))
	requireLost(t, e, pids, folder)
}

// A rank is stopped, as one is whose machine hangs.
func TestASilentRankEndsTheGroup(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	folder := written(t, cfg)
	e := opened(t, backend(2), cfg, folder)
	pids := e.PIDs()
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGSTOP))
	torch.SetSilentAfter(e, 10*time.Second) // a machine may be too busy for that while the ranks start
	parts, _ := someParts(cfg)
	err := e.Evaluate(t.Context(), parts, func(int, *gpu.Outputs) error { return nil })
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "has sent nothing for torch.silent_after, 10s")
	requireLost(t, e, pids, folder)
}

// A rank works and does not come on: the time that it may take has a bound.
func TestAStalledRankEndsTheGroup(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen2"]
	cfg.HiddenSize, cfg.IntermediateSize, cfg.MaxPositions = 512, 1024, 1<<16
	folder := written(t, cfg)
	b := backend(1)
	b.Config.SilentAfter = 40 * time.Second // the group looks eight times in it
	e := opened(t, b, cfg, folder)
	pids := e.PIDs()
	// No piece of a block over so long a sequence is done in a millisecond.
	torch.SetStalledAfter(e, time.Millisecond)
	part := &gpu.Batch{Tokens: make([]int32, 4000), Mask: make([]uint8, 4000), Offsets: []int{0, 4000}}
	var err error
	for err == nil {
		err = e.Evaluate(t.Context(), []*gpu.Batch{part}, func(int, *gpu.Outputs) error { return nil })
	}
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "has not come on for torch.stalled_after, 1ms, during forward")
	torch.SetStalledAfter(e, b.Config.StalledAfter)
	requireLost(t, e, pids, folder)
}

// The kernel gives a rank no more memory.
func TestARankWithoutMemoryIsNamedWithWhatToDo(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen3"]
	cfg.MaxPositions = 1 << 15
	folder := written(t, cfg)
	e := opened(t, backend(2), cfg, folder)
	pids := e.PIDs()
	parts, _ := someParts(cfg)
	require.NoError(t, e.Evaluate(t.Context(), parts, func(int, *gpu.Outputs) error { return nil }))
	var pages uint64 // that it has
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pids[0]))
	require.NoError(t, err)
	_, err = fmt.Sscan(string(statm), &pages)
	require.NoError(t, err)
	most := pages*uint64(os.Getpagesize()) + 512<<20
	require.NoError(t, unix.Prlimit(pids[0], unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}, nil))
	r := rand.New(rand.NewPCG(5, 5))
	n := cfg.MaxPositions
	part := &gpu.Batch{Tokens: make([]int32, n), Mask: make([]uint8, n), Offsets: []int{0, n}}
	for i := range part.Tokens {
		part.Tokens[i], part.Mask[i] = int32(r.IntN(cfg.VocabSize)), 1
	}
	err = e.Evaluate(t.Context(), []*gpu.Batch{part}, func(int, *gpu.Outputs) error { return nil })
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "rank 0")
	require.ErrorContains(t, err, "ran out of memory in forward: lower trainer.micro_tokens")
	requireLost(t, e, pids, folder)
}

// A process that is killed leaves no rank behind: the test starts itself, kills that, and waits for its ranks' end.
func TestAKilledParentLeavesNoRanks(t *testing.T) {
	needTime(t)
	needPython(t)
	if os.Getenv("WEIR_TORCH_PARENT") != "" {
		cfg := families()["llama"]
		e := opened(t, backend(2), cfg, written(t, cfg))
		fmt.Printf("ranks %d %d\n", e.PIDs()[0], e.PIDs()[1])
		select {} // until it is killed
	}
	self := exec.Command(os.Args[0], "-test.run", "TestAKilledParentLeavesNoRanks", "-test.v")
	self.Env = append(os.Environ(), "WEIR_TORCH_PARENT=1")
	out, err := self.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, self.Start())
	var pids [2]int
	var text strings.Builder
	buf := make([]byte, 4096)
	for pids[1] == 0 {
		n, err := out.Read(buf)
		text.Write(buf[:n])
		require.NoError(t, err, text.String())
		if _, after, ok := strings.Cut(text.String(), "ranks "); ok && strings.Contains(after, "\n") {
			_, err := fmt.Sscanf(after, "%d %d", &pids[0], &pids[1])
			require.NoError(t, err)
		}
	}
	require.True(t, running(pids[0]) && running(pids[1]))
	require.NoError(t, self.Process.Kill())
	require.Error(t, self.Wait())
	require.Eventually(t, func() bool { return ended(pids[0]) && ended(pids[1]) }, patience, 50*time.Millisecond)
}

// ended says that a process is gone, or waits for somebody to ask how it ended: where nothing adopts orphans, it waits for ever.
func ended(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	_, after, _ := strings.Cut(string(status), ") ")
	return strings.HasPrefix(after, "Z")
}

// What a user may have instead of a Python with PyTorch.
func TestPythonsThatWillNotDoAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return path
	}
	cfg := families()["llama"]
	folder := written(t, cfg)
	for name, c := range map[string]struct {
		python string
		want   []string
	}{
		"none":         {filepath.Join(dir, "python9"), []string{"torch.python", "name a Python that has PyTorch"}},
		"no PyTorch":   {script("without", "exit 9"), []string{"without has no PyTorch", "apt install python3-torch"}},
		"broken":       {script("broken", "echo oh no; exit 1"), []string{"broken does not run", "oh no"}},
		"ends at once": {script("ends", `case "$2" in *find_spec*) exit 0;; esac; echo boom >&2; exit 7`), []string{"rank 0", "exit status 7", "boom"}},
	} {
		b := backend(1)
		b.Config.Python = c.python
		e := engineOf(t, b, cfg)
		err := e.Import(t.Context(), folder)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, name)
		}
		require.NoError(t, e.Close())
	}
}

// A python3 that is a script around another one is given up with its context, though what it started still has its output.
func TestAWrapperThatHangsIsGivenUp(t *testing.T) {
	needTime(t)
	dir := t.TempDir()
	wrapper, said := filepath.Join(dir, "python3"), filepath.Join(dir, "pid")
	text := fmt.Sprintf("#!/bin/sh\nsleep 600 &\necho $! > %s.new\nmv %s.new %s\nwait\n", said, said, said)
	require.NoError(t, os.WriteFile(wrapper, []byte(text), 0o755))
	b := backend(1)
	b.Config.Python = wrapper
	e := engineOf(t, b, families()["llama"])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.ResetOptimizer(ctx) }()
	var pid int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(said)
		if err == nil {
			_, err = fmt.Sscan(string(data), &pid)
		}
		return err == nil
	}, patience, 20*time.Millisecond)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	cancel()
	require.Error(t, <-ended)
	require.True(t, running(pid), "it was not waited for")
	require.NoError(t, e.Close())
}

// Settings that the machine cannot meet are refused by name.
func TestSettingsThatTheMachineCannotMeetAreRefused(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	folder := written(t, cfg)
	for name, c := range map[string]struct {
		change func(*torch.Config)
		want   string
	}{
		"attention": {func(c *torch.Config) { c.Attention = "varlen" }, "torch.attention: varlen cannot be used here"},
		"device":    {func(c *torch.Config) { c.Device = "cuda" }, "torch.device: cuda"},
	} {
		b := backend(1)
		c.change(&b.Config)
		e := engineOf(t, b, cfg)
		err := e.Import(t.Context(), folder)
		require.ErrorContains(t, err, c.want, name)
		require.NotErrorIs(t, err, gpu.ErrLost, "a second try would not help")
		require.NoError(t, e.Close())
	}
}

// Finding Q11 of the defects' review: a caller that gives up waits for no rank any more, those behind the first that does not answer among
// them, and the group goes on.
func TestACallGivenUpLeavesNothingWaiting(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	e := opened(t, backend(3), cfg, written(t, cfg))
	parts, _ := someParts(cfg)
	evaluate := func(ctx context.Context) error {
		return e.Evaluate(ctx, parts, func(int, *gpu.Outputs) error { return nil })
	}
	pid := e.PIDs()[1]
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- evaluate(ctx) }()
	require.Eventually(t, torch.Asked(e, 2, "forward"), patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Zero(t, torch.Waiting(e))
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.NoError(t, evaluate(t.Context()))
}
