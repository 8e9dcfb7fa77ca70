package starlark

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// pidOf is the process that an episode's cells run in, of which none runs.
func pidOf(t *testing.T, tool *Tool, episode string) int {
	t.Helper()
	return workerOf(t, tool, episode).process.PID()
}

// gonePID waits until there is no such process.
func gonePID(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, patient, 10*time.Millisecond, "process %d is there", pid)
}

// workerOf is the worker of an episode that no cell runs in.
func workerOf(t *testing.T, tool *Tool, episode string) *worker {
	t.Helper()
	tool.mu.Lock()
	defer tool.mu.Unlock()
	require.NotNil(t, tool.sessions[episode].worker)
	return tool.sessions[episode].worker
}

// begun waits until a cell runs in the worker.
func begun(t *testing.T, w *worker) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.waiting) > 0
	}, patient, time.Millisecond)
}

const endless = "while True:\n    pass"

// patiently lets cells run as long as a test waits.
func patiently(cfg *Config) { cfg.Steps = 1 << 60 }

func TestAWorkerThatIsKilledCostsTheVariables(t *testing.T) {
	t.Parallel()
	tool := newTool(t, patiently)
	open(t, tool, "e")
	run(t, tool, "e", "x = 1")
	w := workerOf(t, tool, "e")
	pid := w.process.PID()
	var o producers.Observation
	var err error
	var running sync.WaitGroup
	running.Go(func() { o, err = tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: endless}) })
	begun(t, w)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	running.Wait()
	require.NoError(t, err)
	require.Equal(t, "Error: the interpreter was ended by signal 9; all variables are gone", o.Text)
	require.Equal(t, 1, o.Errors)
	require.Contains(t, run(t, tool, "e", "x").Text, "undefined: x")
	require.Equal(t, "2", run(t, tool, "e", "1 + 1").Text)

	// Between two cells it is nobody's doing.
	pid = pidOf(t, tool, "e")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	gonePID(t, pid)
	<-tool.sessions["e"].worker.ended
	_, err = tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: "x"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "was ended by signal 9 between two cells")
}

func TestACellThatOutlastsItsCallIsEnded(t *testing.T) {
	t.Parallel()
	tool := newTool(t, patiently)
	open(t, tool, "e")
	run(t, tool, "e", "x = 1")
	w := workerOf(t, tool, "e")
	pid := w.process.PID()
	ctx, cancel := context.WithCancelCause(t.Context())
	var err error
	var running sync.WaitGroup
	running.Go(func() { _, err = tool.Call(ctx, producers.Call{Episode: "e", Arguments: endless}) })
	begun(t, w)
	cancel(fmt.Errorf("timed out"))
	running.Wait()
	require.ErrorContains(t, err, "timed out")
	gonePID(t, pid)
	o := run(t, tool, "e", "1 + 1")
	require.Equal(t, "Error: the interpreter was started anew; all variables are gone\n2", o.Text, "the agent is told once")
	require.Equal(t, "2", run(t, tool, "e", "1 + 1").Text)
}

func TestClosingEndsTheWorker(t *testing.T) {
	t.Parallel()
	tool := newTool(t, nil)
	open(t, tool, "a")
	require.Empty(t, tool.workers, "no process before the first cell")
	run(t, tool, "a", "x = 1")
	pid := pidOf(t, tool, "a")
	require.NoError(t, tool.Close(t.Context(), "a"))
	gonePID(t, pid)
	require.Empty(t, tool.workers)
	require.Eventually(t, func() bool { return len(tool.slots) == 0 }, time.Minute, time.Millisecond)
}

func TestSessionsShareAWorker(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.Steps = 2, 1<<60 })
	for _, episode := range []string{"a", "b", "c"} {
		open(t, tool, episode)
		run(t, tool, episode, "x = '"+episode+"'")
	}
	require.Len(t, tool.workers, 2)
	require.Equal(t, pidOf(t, tool, "a"), pidOf(t, tool, "b"))
	require.NotEqual(t, pidOf(t, tool, "a"), pidOf(t, tool, "c"))
	for _, episode := range []string{"a", "b", "c"} {
		require.Equal(t, `"`+episode+`"`, run(t, tool, episode, "x").Text, "each has its own variables")
	}

	// A cell that ends its worker costs its neighbour the variables, of which it is told.
	require.Contains(t, run(t, tool, "a", "list(range(1 << 62))").Text, "all variables are gone")
	require.Equal(t, "Error: the interpreter was started anew; all variables are gone\n2", run(t, tool, "b", "1 + 1").Text)
	require.Contains(t, run(t, tool, "b", "x").Text, "undefined: x")
	require.Equal(t, `"c"`, run(t, tool, "c", "x").Text)
	require.Equal(t, "3", run(t, tool, "a", "3").Text)
	require.NotEqual(t, pidOf(t, tool, "a"), pidOf(t, tool, "b"), "who lost a shared worker gets one of its own")
	require.NoError(t, tool.Close(t.Context(), "b"))
	require.NoError(t, tool.Close(t.Context(), "a"))
	require.Len(t, tool.workers, 1)
}

// An episode that is given up in a cell, as tickets are at the end of a step, costs the episodes that share its worker nothing: their
// variables were lost, and their samples trained on as failures. The cell ends, and its own session begins anew.
func TestACellThatIsGivenUpCostsItsNeighboursNothing(t *testing.T) {
	t.Parallel()
	world := &waiting{reached: make(chan struct{}, 2), let: make(chan struct{})}
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.Steps = 4, 1<<60 }, world)
	for _, episode := range []string{"a", "b", "c", "d"} {
		open(t, tool, episode)
		run(t, tool, episode, "x = '"+episode+"'")
	}
	shared := workerOf(t, tool, "d")
	for episode, code := range map[string]string{
		"a": endless,
		"b": "wait()", // a function of the world is under way
		"c": "x = 7\nwhile True:\n    x += 1",
	} {
		require.Same(t, shared, workerOf(t, tool, episode))
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		var running sync.WaitGroup
		running.Go(func() { _, err = tool.Call(ctx, producers.Call{Episode: episode, Arguments: code}) })
		if begun(t, shared); episode == "b" {
			<-world.reached
		}
		cancel(errors.New("the ticket was withdrawn"))
		running.Wait()
		require.ErrorContains(t, err, "the ticket was withdrawn")
		require.Equal(t, `"d"`, run(t, tool, "d", "x").Text, "after %s", code)
		require.Contains(t, run(t, tool, episode, "x").Text, "the interpreter was started anew; all variables are gone")
		require.NoError(t, tool.Close(t.Context(), episode))
	}
	require.True(t, shared.isAlive())
	require.Equal(t, 1, shared.sessions)
	require.Empty(t, shared.waiting)
}

// Finding 15a.5: a function of the world that took longer than twice the cell's time ended the worker that others share, whether its cell
// was given up meanwhile or not: the time in which the cell could be interrupted had passed while it could not be.
func TestASlowFunctionCostsItsNeighboursNothing(t *testing.T) {
	t.Parallel()
	for name, givenUp := range map[string]bool{"given up": true, "comes back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := &slow{reached: make(chan struct{}, 1), let: make(chan struct{})}
			const limit = time.Second
			tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.CellTimeout = 2, limit }, world)
			for _, episode := range []string{"a", "b"} {
				open(t, tool, episode)
				run(t, tool, episode, "x = 1")
			}
			w := workerOf(t, tool, "b")
			ctx, cancel := context.WithCancelCause(t.Context())
			var o producers.Observation
			var err error
			var running sync.WaitGroup
			running.Go(func() { o, err = tool.Call(ctx, producers.Call{Episode: "a", Arguments: "wait()\nx"}) })
			<-world.reached
			time.AfterFunc(2*limit+limit/2, func() { close(world.let) })
			if givenUp {
				cancel(errors.New("the ticket was withdrawn"))
			}
			running.Wait()
			if givenUp {
				require.ErrorContains(t, err, "the ticket was withdrawn")
			} else {
				require.NoError(t, err)
				require.Equal(t, "Error: the cell ran for more than 1s", o.Text)
				require.Equal(t, "1", run(t, tool, "a", "x").Text)
			}
			require.True(t, w.isAlive())
			require.Equal(t, "1", run(t, tool, "b", "x").Text)
			cancel(nil)
		})
	}
}

// slow is a world with a function that ends when it is let, and not with its call.
type slow waiting

func (s *slow) Open(producers.Session) (tasks.Functions, error) { return s, nil }
func (s *slow) Names() []string                                 { return []string{"wait"} }
func (s *slow) Call(ctx context.Context, _ string, _ []any) (any, error) {
	s.reached <- struct{}{}
	<-s.let
	return nil, context.Cause(ctx)
}

// No session joins a worker that is kept for the only session that it has, as is done where that session's cell is given up: the worker
// ends (15a.7).
func TestNoSessionJoinsAWorkerThatIsAboutToEnd(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker = 2 })
	for _, episode := range []string{"a", "b", "c"} {
		open(t, tool, episode)
	}
	run(t, tool, "a", "x = 1")
	w := workerOf(t, tool, "a")
	require.True(t, tool.reserveWorker(w))
	run(t, tool, "b", "x = 2")
	require.NotSame(t, w, workerOf(t, tool, "b"))
	run(t, tool, "c", "x = 3")
	require.False(t, tool.reserveWorker(workerOf(t, tool, "c")), "it has two sessions")
	w.killProcess()
	require.Equal(t, "2", run(t, tool, "b", "x").Text)
	require.Equal(t, "3", run(t, tool, "c", "x").Text)
}

// A cell of a shared worker that no interrupt ends is ended with the worker when its time is over.
func TestACellThatCannotBeInterruptedEndsItsWorker(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.CellTimeout = 2, time.Second })
	for _, episode := range []string{"a", "b"} {
		open(t, tool, episode)
		run(t, tool, episode, "x = 1")
	}
	w := workerOf(t, tool, "a")
	require.NoError(t, syscall.Kill(w.process.PID(), syscall.SIGSTOP))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the ticket was withdrawn"))
	_, err := tool.Call(ctx, producers.Call{Episode: "a", Arguments: "x"})
	require.ErrorContains(t, err, "the ticket was withdrawn")
	require.False(t, w.isAlive())
	require.Equal(t, "Error: the interpreter was started anew; all variables are gone\n2", run(t, tool, "b", "1 + 1").Text)
}

// The list of ways out of training: of two cells that ran when their worker ended one may have ended it. Each runs again in a worker of its
// own, and what ends that one too is told to its agent; a cell that had called a function of the world is not run twice. Nobody's call is
// the machinery's failure.
func TestCellsThatRanWhenTheirWorkerEndedRunAgainApart(t *testing.T) {
	t.Parallel()
	world := &waiting{reached: make(chan struct{}, 2), let: make(chan struct{})}
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.Steps = 3, 1<<60 }, world)
	for _, episode := range []string{"a", "b", "c"} {
		open(t, tool, episode)
		run(t, tool, episode, "1")
	}
	w := workerOf(t, tool, "a")
	require.Equal(t, w, workerOf(t, tool, "b"))
	said := map[string]producers.Observation{}
	errs := map[string]error{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for episode, code := range map[string]string{
		"a": "x = 0\nwhile x < 300000:\n    x += 1\nx", "b": "list(range(1 << 62))", "c": "wait()",
	} {
		running.Go(func() {
			if episode == "b" {
				<-world.reached // the cells of the others run
			}
			o, err := tool.Call(t.Context(), producers.Call{Episode: episode, Arguments: code})
			if episode == "b" {
				close(world.let)
			}
			mu.Lock()
			defer mu.Unlock()
			said[episode], errs[episode] = o, err
		})
	}
	running.Wait()
	for _, episode := range []string{"a", "b", "c"} {
		require.NoError(t, errs[episode], episode)
	}
	require.Contains(t, said["a"].Text, "300000")
	require.Contains(t, said["b"].Text, "all variables are gone", "it ended the second worker too")
	require.Equal(t, 1, said["b"].Errors)
	require.Contains(t, said["c"].Text, "all variables are gone")
	require.Empty(t, world.reached, "its function was called once")
}

// waiting is a world with a function that ends with its call.
type waiting struct{ reached, let chan struct{} }

func (w *waiting) Open(producers.Session) (tasks.Functions, error) { return w, nil }
func (w *waiting) Names() []string                                 { return []string{"wait"} }
func (w *waiting) Call(ctx context.Context, _ string, _ []any) (any, error) {
	w.reached <- struct{}{}
	select {
	case <-w.let:
	case <-ctx.Done():
	}
	return nil, context.Cause(ctx)
}

func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.Workers = 1 })
	open(t, tool, "a")
	open(t, tool, "b")
	run(t, tool, "a", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := tool.Call(ctx, producers.Call{Episode: "b", Arguments: "1"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "all 1 workers are taken")
	require.NoError(t, tool.Close(t.Context(), "a"))
	require.Equal(t, "1", run(t, tool, "b", "1").Text)
}

func TestManySessionsAtOnce(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker = 50 })
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			episode := strconv.Itoa(i)
			if err := tool.Open(t.Context(), producers.Session{Episode: episode}); err != nil {
				t.Error(err)
			}
			for range 3 {
				o, err := tool.Call(t.Context(), producers.Call{Episode: episode, Arguments: "x = " + episode + "\nx * 2"})
				if err != nil || o.Text != strconv.Itoa(2*i) {
					t.Errorf("episode %s: %q, %v", episode, o.Text, err)
				}
			}
			if err := tool.Close(t.Context(), episode); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Empty(t, tool.workers)
}

// A worker's environment is empty but for the settings of its own runtime, and its files are its socket and its complaints.
func TestAWorkerHasNothingOfItsHost(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("this system shows no process's environment in /proc")
	}
	t.Setenv("SECRET", "s3cr3t")
	tool := newTool(t, nil)
	open(t, tool, "e")
	run(t, tool, "e", "1")
	pid := pidOf(t, tool, "e")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	require.Equal(t, "GOMAXPROCS=2\x00GOTRACEBACK=none\x00", string(environ))
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(command), childName+"\x00"))
}

// SIGKILL of a producer leaves no worker, also where a cell runs for ever.
func TestNoWorkerOutlivesItsHost(t *testing.T) {
	if os.Getenv("STARLARK_HOST") != "" {
		tool := newTool(t, patiently)
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "f"}))
		run(t, tool, "e", "1")
		run(t, tool, "f", "1")
		fmt.Println("pids", pidOf(t, tool, "e"), pidOf(t, tool, "f"))
		_, _ = tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: endless})
		t.Fatal("the cell has ended")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	host := exec.Command(program, "-test.run", "^TestNoWorkerOutlivesItsHost$", "-test.v")
	host.Env = append(os.Environ(), "STARLARK_HOST=1")
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	var pids [2]int
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "pids %d %d", &pids[0], &pids[1]); n == 2 {
			break
		}
	}
	require.NotZero(t, pids[1])
	for _, pid := range pids {
		require.NoError(t, syscall.Kill(pid, 0), "it runs")
	}
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	for _, pid := range pids {
		gonePID(t, pid)
	}
}

func BenchmarkCell(b *testing.B) {
	cfg := DefaultConfig()
	cfg.SessionsPerWorker = 1000
	tool, err := New(cfg, nil)
	require.NoError(b, err)
	require.NoError(b, tool.Open(b.Context(), producers.Session{Episode: "e"}))
	for b.Loop() {
		if _, err := tool.Call(b.Context(), producers.Call{Episode: "e", Arguments: "s = 0\ns = s + 17 * 23"}); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, tool.Close(b.Context(), "e"))
}

func BenchmarkStart(b *testing.B) {
	tool, err := New(DefaultConfig(), nil)
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, tool.Open(b.Context(), producers.Session{Episode: "e"}))
		if _, err := tool.Call(b.Context(), producers.Call{Episode: "e", Arguments: "1"}); err != nil {
			b.Fatal(err)
		}
		require.NoError(b, tool.Close(b.Context(), "e"))
	}
}
