package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

// needTorch skips a test where Debian's Python has no PyTorch, and fails it in continuous integration or where WEIR_NEED_TORCH is
// set.
func needTorch(t *testing.T) {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return
		}
	}
	const missing = "the engine torch is not tested: no python3 here has PyTorch: apt-get install python3-torch"
	if os.Getenv("CI")+os.Getenv("WEIR_NEED_TORCH") != "" {
		t.Fatal(missing)
	}
	t.Skip("SKIPPED: " + missing)
}

// torchRun are the arguments of a short run of a folder, on two ranks and a sampler in PyTorch.
func torchRun(folder, questions, runs string, steps int) []string {
	return []string{
		"up", "--config", filepath.Join(root, "examples", "your-gpus.yaml"), "--model.folder", folder, "--torch.device", "cpu",
		"--tasks.sums.type", "jsonl", "--tasks.sums.questions", questions, "--trainer.steps", fmt.Sprint(steps),
		"--trainer.batch_groups", "1", "--trainer.group_size", "4", "--trainer.limits.max_tokens", "48", "--trainer.cold_start.steps", "0",
		"--trainer.max_dropped_groups", "2", "--trainer.optimizer.learning_rate", "0.003",
		"--eval.every", "0", "--broker.listen", "127.0.0.1:0", "--telemetry.listen", "", "--run.name", "mine", "--run.dir", runs,
	}
}

// One command trains a folder of each family with two ranks of PyTorch, and samples with a third process.
func TestPyTorchTrainsAndSamplesEachFamily(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "starts processes that import PyTorch")
	needTorch(t)
	questions := sums(t)
	for family, dialect := range map[string]string{"llama": "5", "qwen2": "4", "qwen3": "5"} {
		t.Run(family, func(t *testing.T) {
			dir, runs := madeFolder(t, family, dialect), t.TempDir()
			_, err := runWeir(t, "", torchRun(dir, questions, runs, 2)...)
			require.NoError(t, err)
			saved := filepath.Join(runs, "saved")
			_, err = runWeir(t, "", "model", "export", "mine", saved, "--run.dir", runs)
			require.NoError(t, err)
			var read struct {
				Differ, Tensors int
				Most            float64
			}
			require.NoError(t, json.Unmarshal([]byte(script(t, "", "read.py", dir, saved)), &read))
			require.Greater(t, read.Tensors, 10, "the training reached most tensors: %+v", read)
			require.Less(t, read.Most, 0.1, "by a little")
		})
	}
}

// Ranks and samplers are killed again and again while a run goes on: it ends with all its steps.
func TestARunOutlivesItsPyTorchProcesses(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "starts processes that import PyTorch")
	needTorch(t)
	const steps = 6
	runs := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary(t), torchRun(madeFolder(t, "qwen3", "4"), sums(t), runs, steps)...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	killed := map[int]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for step := 1; ; {
		select {
		case err := <-ended:
			require.NoError(t, err, log.String())
			require.NotEmpty(t, killed, log.String())
			require.FileExists(t, filepath.Join(runs, "mine", "checkpoints", fmt.Sprintf("step_%06d", steps), "config.json"))
			return
		case <-tick.C:
		}
		// Once a step is done, one of the processes goes, each in its turn; the first as soon as there is a checkpoint.
		done, err := filepath.Glob(filepath.Join(runs, "mine", "checkpoints", "step_*"))
		require.NoError(t, err)
		if len(done) == 0 || step >= steps || filepath.Base(done[len(done)-1]) < fmt.Sprintf("step_%06d", step-1) {
			continue
		}
		if all := workers(cmd.Process.Pid, killed); len(all) > 0 {
			pid := all[step%len(all)]
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed[pid] = true
				step++
			}
		}
	}
}

// workers are the living Python processes of a parent, oldest first, but for those that were killed.
func workers(parent int, killed map[int]bool) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, x := range tasks {
		more, _ := os.ReadFile(x)
		text = append(append(text, ' '), more...)
	}
	seen := map[int]bool{}
	var out []int
	for field := range strings.FieldsSeq(string(text)) {
		var pid int
		if _, err := fmt.Sscan(field, &pid); err != nil || seen[pid] || killed[pid] {
			continue
		}
		seen[pid] = true
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "weir_main") {
			out = append(out, pid)
		}
	}
	return out
}
