package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// serverFaults happen at every so manieth chance: answers that are cut, reset, aborted in the queue or without a log-probability;
// loads that fail or lie; resumes that are lost; pauses that never return.
const serverFaults = "cut:97+reset:131+queue:53+sentinel:61+load:7+lie:11+lost:9+hang /pause:23+hang /pause_generation:23"

// A run trains through two servers of either kind to the demonstration's score, over 20 versions, with faults thrown in and
// a server killed now and then; its record is in order, and a server that was killed was started again.
func TestARunTrainsThroughInferenceServers(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a whole training, twice")
	memory := filepath.Join(t.TempDir(), "vllm") // a program of this name gets the plugin, and versions through shared memory
	require.NoError(t, os.WriteFile(memory, []byte("#!/bin/sh\nexec fakeserver vllm --release 0.33.0 \"$@\"\n"), 0o755))
	for command, kind := range map[string]string{"fakeserver,vllm": "vllm", "fakeserver,sglang": "sglang", memory: "vllm"} {
		t.Run(filepath.Base(command), func(t *testing.T) {
			dir := t.TempDir()
			var out bytes.Buffer
			c := exec.CommandContext(t.Context(), binary(t), "up", "--config", "examples/countries-two-hop.yaml", "--run.dir", dir, "--run.name", kind,
				"--trainer.steps", "20", "--eval.every", "10", "--eval.questions", "40", "--eval.show", "0", "--inference.engine", kind, "--inference.server.command", command,
				"--inference.server.count", "2", "--inference.server.control_timeout", "2s", "--inference.server.check_every", "200ms",
				"--inference.server.args", "--faults,"+serverFaults)
			c.Dir, c.Stdout, c.Stderr = root, &out, &out
			require.NoError(t, c.Start())
			done := make(chan error, 1)
			go func() { done <- c.Wait() }()
			run := filepath.Join(dir, kind)
			killed := killServers(t, run, done)
			require.NoError(t, <-done, out.String())
			require.Equal(t, 3, killed, out.String())
			// The run may end before the server that was killed last is there again.
			require.GreaterOrEqual(t, len(startedServers(run)), 2+killed-1, "a killed server is started again")

			records, err := report.ReadMetrics(filepath.Join(run, "metrics.jsonl"))
			require.NoError(t, err)
			steps := report.Collect(records, string(schemas.EventStepDone), metrics.RewardMean.Name, "")
			require.Len(t, steps.X, 20)
			score := report.Collect(records, "tested", metrics.TestExactMatchGreedy.Name, "")
			require.Len(t, score.Y, 1)
			// 0.98 here, as with the engine in the process; a standard error of 0.02.
			require.Greater(t, score.Y[0], 0.85)
			// The scores on the way are sampled by the servers too, and no other engine is started.
			scored := report.Collect(records, string(schemas.EventEvaluated), metrics.EvalVersions.Name, "")
			require.NotEmpty(t, scored.Y)
			for _, versions := range scored.Y {
				require.GreaterOrEqual(t, versions, 1.0)
			}
			require.Contains(t, weir(t, "audit", "--run.name", kind, "--run.dir", dir), "steps 20, ")
			left, err := filepath.Glob(filepath.Join(run, "servers", "v[0-9]*"))
			require.NoError(t, err)
			require.LessOrEqual(t, len(left), 3)
			log := string(read(t, filepath.Join(run, "weir.log")))
			require.Equal(t, command == memory, strings.Contains(log, `"from":"memory"`), log)
			for _, pid := range startedServers(run) {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "server %d still runs", pid)
			}
		})
	}
}

// killServers kills the newest server after steps 4, 8 and 12, and returns how many it has killed.
func killServers(t *testing.T, run string, done chan error) (killed int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for killed < 3 {
		select {
		case err := <-done:
			done <- err
			return killed
		case <-tick.C:
		}
		records, err := report.ReadMetrics(filepath.Join(run, "metrics.jsonl"))
		if err != nil {
			continue // it is being written, or not there yet
		}
		steps := report.Collect(records, string(schemas.EventStepDone), metrics.RewardMean.Name, "")
		pids := startedServers(run)
		if len(steps.X) >= 4*(killed+1) && len(pids) > 0 && syscall.Kill(pids[len(pids)-1], syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// startedServers are the process ids of the servers that a run has started, by its log.
func startedServers(run string) (pids []int) {
	f, err := os.Open(filepath.Join(run, "weir.log"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Message string `json:"msg"`
			PID     int    `json:"pid"`
		}
		if strings.Contains(lines.Text(), "started an inference server") && json.Unmarshal(lines.Bytes(), &line) == nil && line.PID > 0 {
			pids = append(pids, line.PID)
		}
	}
	return pids
}
