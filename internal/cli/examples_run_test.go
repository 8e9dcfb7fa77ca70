package cli

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// runnable is an example that trains, as a user starts it.
type runnable struct {
	// format has a small model made for a format of tool calls, by the example's first line.
	format string
	// model has the small model folder made that the example's second line makes.
	model bool
	// sandbox says that its tools, or its tests, run what the model wrote.
	sandbox bool
	// servers start what the example needs beside it, with program, which is weir, and return the flags that name their addresses.
	servers func(t *testing.T, dir, program string) []string
	// coldStart is how many steps of imitation it takes until the model calls tools.
	coldStart string
	// calls are the tools that trained trajectories must have called without a failure.
	calls []string
	// tasks are those of which a trajectory must have been trained on.
	tasks []string
	// forks says that a trajectory must have been trained on that begins with turns of another one, each of them replayed.
	forks bool
	// flags are given beside the configuration, and check looks at each trajectory that was trained on; it may be nil.
	flags []string
	check func(t *testing.T, trajectory *schemas.Trajectory)
	// trims says that a trained trajectory must have gone on in a new context.
	trims bool
}

// runnables are the examples that this file runs, by the path of their configuration. Others have tests of their own.
var runnables = map[string]runnable{
	"math-code/run.yaml":        {model: true, sandbox: true, coldStart: "60", calls: []string{"python"}},
	"ledger/soft.yaml":          {coldStart: "60", calls: []string{"starlark"}, trims: true},
	"horizon.yaml":              {coldStart: "200", calls: []string{"search"}, check: twoCalls},
	"branch/run.yaml":           {coldStart: "60", calls: []string{"starlark"}, forks: true},
	"hotpot/run.yaml":           {coldStart: "60", calls: []string{"search"}},
	"simulated-search/run.yaml": {coldStart: "200", calls: []string{"search"}},
	"two-tools.yaml":            {coldStart: "200", calls: []string{"search", "expert"}},
	"tool-servers/run.yaml": {
		model: true, sandbox: true, servers: toolServers, coldStart: "80", calls: []string{"search", "calculator", "stock", "starlark"},
	},
	"python-agent/every-way.yaml": {sandbox: true, servers: agentServer, coldStart: "0", tasks: []string{"called", "started", "coming"}},
	"many-tools/run.yaml":         {model: true, sandbox: true, coldStart: "200", calls: []string{"calculator", "sql", "shell", "read_file", "finish"}},
	"team/run.yaml": {
		coldStart: "300", calls: []string{"delegate", "search"}, check: teamOf, flags: []string{
			"--tasks.countries.reward.type", "team", "--tasks.countries.reward.worker", "answered",
			"--trainer.advantage.name", "hierarchical_grpo", "--trainer.advantage.episode_agents", "worker",
		},
	},
	"formats/harmony.yaml": {format: "harmony", coldStart: "100", calls: []string{"search"}},
	"formats/tag.yaml":     {format: "tag", coldStart: "100", calls: []string{"search"}},
	"formats/code.yaml":    {format: "code", coldStart: "100", calls: []string{"starlark"}},
	"formats/fence.yaml":   {format: "fence", coldStart: "100", calls: []string{"starlark"}},
}

// Each example trains two steps as its first lines start it, calls its tools, and accounts for every trajectory.
func TestExamplesTrain(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "runs programs")
	for path, example := range runnables {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			example.run(t, path)
		})
	}
}

// run is one example.
func (r runnable) run(t *testing.T, path string) {
	if r.sandbox {
		workspacetest.Spaces(t, func(*sandbox.Config) {}) // or the test is skipped
	}
	dir, program := t.TempDir(), binary(t)
	tree, err := filepath.Abs(filepath.Join(root, "examples"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(tree, filepath.Join(dir, "examples")))
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), agentKey)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out)
	}
	if r.format != "" {
		in(interpreter(t), "examples/own-chat/make_model.py", "models", "--format", r.format)
	}
	if r.model {
		in(interpreter(t), "examples/own-chat/make_model.py", "models", "examples/"+filepath.Dir(path))
	}
	args := []string{
		"up", "--config", "examples/" + path, "--run.name", "tried", "--trainer.steps", "2", "--trainer.batch_groups", "6", "--trainer.group_size", "4",
		"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", r.coldStart, "--eval.questions", "4", "--eval.test_questions", "4", "--trainer.checkpoint.batches", "-1",
		"--telemetry.listen", "127.0.0.1:0", "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
	}
	args = append(args, r.flags...)
	if r.servers != nil {
		args = append(args, r.servers(t, dir, program)...)
	}
	said := in(program, args...)
	require.Contains(t, said, "step 2/2")
	audited := in(program, "audit", "--run.name", "tried")
	require.Contains(t, audited, "steps 2, ")
	require.Contains(t, audited, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 lines_changed=0")

	folder := filepath.Join(dir, "runs", "tried", "checkpoints")
	records, err := checkpoint.ReadRecords(folder)
	require.NoError(t, err)
	require.Len(t, records, 3)
	called, trained, forks, segments := map[string]int{}, map[string]int{}, 0, 0
	for _, rec := range records[1:] { // the first is that of the beginning
		deliveries, err := checkpoint.ReadBatch(folder, &rec)
		require.NoError(t, err)
		for _, d := range deliveries {
			trained[d.Trajectory.Task]++
			if r.check != nil {
				r.check(t, d.Trajectory)
			}
			segments = max(segments, len(d.Trajectory.Segments))
			if f := d.Trajectory.Forked; f != nil {
				forks++
				require.Empty(t, f.Diverged, "%s: its tools answer as they did", d.Trajectory.ID)
			}
			for _, turn := range d.Trajectory.Turns {
				for _, call := range turn.Calls {
					if !call.Failed {
						called[call.Tool]++
					}
				}
			}
		}
	}
	require.True(t, !r.trims || segments > 1, "no context was trimmed")
	require.Equal(t, r.forks, forks > 0, "%d forks", forks)
	for _, task := range r.tasks {
		require.Positive(t, trained[task], "no trajectory of %s was trained on: %v", task, trained)
	}
	for _, tool := range r.calls {
		require.Positive(t, called[tool], "no trained trajectory called %s; it called %v", tool, called)
	}
}

// teamOf holds a trajectory to what a team records: the planner's context first, then a worker's for each delegation that was taken on, and a
// reward for each: the outcome, or nothing for a worker without an answer.
func teamOf(t *testing.T, trajectory *schemas.Trajectory) {
	delegated, agents := 0, []string{"planner"}
	for _, turn := range trajectory.Turns {
		for _, call := range turn.Calls {
			if call.Tool == "delegate" {
				require.Zero(t, turn.Segment, "the planner alone delegates")
				delegated++
			} else {
				require.NotZero(t, turn.Segment, "the planner calls nothing else")
			}
		}
	}
	for i, s := range trajectory.Segments {
		if i > 0 {
			agents = append(agents, fmt.Sprint("worker-", i))
		}
		require.Equal(t, agents[i], s.Agent)
	}
	require.LessOrEqual(t, len(agents)-1, delegated)
	if len(agents) == 1 {
		require.Nil(t, trajectory.AgentRewards)
		return
	}
	require.Len(t, trajectory.AgentRewards, len(agents))
	require.InDelta(t, trajectory.Reward, trajectory.AgentRewards["planner"], 0)
	for _, agent := range agents[1:] {
		require.Contains(t, []float64{0, trajectory.Reward}, trajectory.AgentRewards[agent])
	}
}

// twoCalls holds a trajectory to the first limit of examples/horizon.yaml.
func twoCalls(t *testing.T, trajectory *schemas.Trajectory) {
	t.Helper()
	calls := 0
	for _, turn := range trajectory.Turns {
		calls += len(turn.Calls)
	}
	require.LessOrEqual(t, calls, 2, trajectory.ID)
}

// agentKey is what agents that come for episodes are known by.
const agentKey = "WEIR_AGENT_KEY=sesame"

// address is one that nothing else listens at.
func address(t *testing.T) string {
	t.Helper()
	reserved, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reserved.Release()) })
	return reserved.Address
}

// serve starts a program beside an example, until the test ends, and waits until it listens.
func serve(t *testing.T, dir, at, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), agentKey), io.Discard, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context ends it
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", at)
		return err == nil && c.Close() == nil
	}, 2*time.Minute, 20*time.Millisecond, "%s %v does not listen at %s", name, args, at)
}

// toolServers are those of examples/tool-servers.
func toolServers(t *testing.T, dir, program string) []string {
	t.Helper()
	searches, cells := address(t), address(t)
	serve(t, dir, searches, program, "toolserver", "search", "calculator", "--config", "examples/own-corpus/run.yaml", "--listen", searches)
	serve(t, dir, cells, program, "mcp", "starlark", "--listen", cells)
	return []string{
		"--tools.ships.url", "http://" + searches + "/retrieve", "--tools.calculator.url", "http://" + searches + "/get_observation",
		"--tools.code.url", "http://" + cells + "/mcp",
	}
}

// agentServer is the agent in Python as a service that has the questions too, and that comes for episodes besides.
func agentServer(t *testing.T, dir, _ string) []string {
	t.Helper()
	at, comes := address(t), address(t)
	_, port, err := net.SplitHostPort(at)
	require.NoError(t, err)
	serve(t, dir, at, interpreter(t), "examples/python-agent/agent.py", "--serve", port, "--come", "http://"+comes)
	questions := "http://" + at + "/questions"
	return []string{
		"--tasks.called.url", questions, "--tasks.started.url", questions, "--tasks.coming.url", questions,
		"--agents.service.service.url", "http://" + at + "/", "--agents.visitor.listen", comes,
	}
}

// interpreter is Python's; without one the test is skipped.
func interpreter(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: the example was not run")
	}
	return path
}
