package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/streamtest"
)

// A tool worker and a producer are killed while a run trains with tools at workers: it ends with all its steps, and no interpreter of
// the worker that was killed is left over.
func TestARunOutlivesItsToolWorkersAndProducers(t *testing.T) {
	t.Parallel()
	const steps = 30
	dir, listen := t.TempDir(), streamtest.FreeAddress(t)
	var all []*exec.Cmd
	start := func(role string, more ...string) *exec.Cmd {
		args := append([]string{
			role, "--config", filepath.Join(root, "examples", "tool-workers", "run.yaml"), "--run.dir", dir, "--broker.listen", listen, "--telemetry.listen", "",
			"--trainer.steps", fmt.Sprint(steps), "--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.minibatches", "1",
			"--trainer.cold_start.steps", "20", "--trainer.selection.drop_zero_variance=false", "--eval.every", "0", "--producer.concurrency", "8",
		}, more...)
		cmd := exec.CommandContext(t.Context(), binary(t), args...)
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.log", role, len(all))))
		require.NoError(t, err)
		cmd.Stdout, cmd.Stderr = log, log
		require.NoError(t, cmd.Start())
		require.NoError(t, log.Close())
		all = append(all, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // one that has ended is past it
			_ = cmd.Wait()
		})
		return cmd
	}
	start("broker")
	trainer := start("trainer")
	start("inference")
	workers := []*exec.Cmd{start("tools"), start("tools")}
	producers := []*exec.Cmd{start("producer"), start("producer")}
	ended := make(chan error, 1)
	go func() { ended <- trainer.Wait() }()

	var interpreters []int
	seen := map[int]bool{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for killed := 0; ; {
		select {
		case err := <-ended:
			require.NoError(t, err, logs(t, dir))
			require.Equal(t, 2, killed, "the run was over too soon\n%s", logs(t, dir))
			require.NotEmpty(t, interpreters, "the worker that was killed had interpreters")
			require.FileExists(t, filepath.Join(dir, "tool-workers", "checkpoints", fmt.Sprintf("step_%06d", steps), "config.json"), logs(t, dir))
			for _, pid := range interpreters {
				require.Eventually(t, func() bool { return !runs(pid) }, time.Minute, 20*time.Millisecond, "interpreter %d of the worker that was killed", pid)
			}
			require.Empty(t, childrenOf(producers[1].Process.Pid), "a producer has no interpreter of its own")
			return
		case <-tick.C:
		}
		for _, pid := range childrenOf(workers[0].Process.Pid) {
			if !seen[pid] && killed == 0 {
				seen[pid] = true
				interpreters = append(interpreters, pid)
			}
		}
		done, err := filepath.Glob(filepath.Join(dir, "tool-workers", "checkpoints", "step_*"))
		require.NoError(t, err)
		switch {
		case killed == 0 && len(interpreters) > 0:
			require.NoError(t, workers[0].Process.Kill())
			killed++
		case killed == 1 && len(done) > 0:
			require.NoError(t, producers[0].Process.Kill())
			killed++
		}
	}
}

// childrenOf are the living processes that a process has started.
func childrenOf(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // none where it has ended
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// runs says whether a process lives; one that is dead and not yet waited for does not.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// logs are what the roles wrote, the end of each.
func logs(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		fmt.Fprintf(&out, "-- %s\n%s\n", filepath.Base(path), text[max(0, len(text)-2000):])
	}
	return out.String()
}
