package assembly

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// Finding 12a.6, its other half: where an episode takes several places and all of them can be held by episodes that wait for another, the configuration
// is told before the run, by its keys. Finding 13 R6: all producers of the process, evaluations and shared servers count. So do the
// scores of a trainer in the same process, which a reader of the mends left open.
func TestEpisodesThatTakeSeveralPlacesAreNamed(t *testing.T) {
	t.Parallel()
	const both = "agents.mine, tools.server, tools.python and tools.shell"
	for _, c := range []struct {
		name, agent, server string
		flags               map[string]string
		want                []string
	}{
		{"one place", "{type: chat}", "sandbox: false", map[string]string{"sandbox.most": "8", "producer.concurrency": "24"}, nil},
		{"one session for all episodes", "{type: chat}", "shared: true", map[string]string{"sandbox.most": "8", "producer.concurrency": "24"}, nil},
		{"three places", "{type: command, run: [agent]}", "dir: /opt", map[string]string{"sandbox.most": "8", "producer.concurrency": "24"}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 24 episodes at once can hold all 8 of sandbox.most while each waits " +
				"for another, until its call fails: set sandbox.most to 49 or more, or producer.concurrency to 3 or less",
		}},
		{"enough places", "{type: command, run: [agent]}", "dir: /opt", map[string]string{"sandbox.most": "49", "producer.concurrency": "24"}, nil},
		{"few episodes", "{type: command, run: [agent]}", "dir: /opt", map[string]string{"sandbox.most": "8", "producer.concurrency": "3"}, nil},
		{"several producers", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "49", "producer.concurrency": "12", "run.producers": "3",
		}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 36 episodes at once can hold all 49 of sandbox.most while each waits " +
				"for another, until its call fails: set sandbox.most to 73 or more, or producer.concurrency to 8 or less",
		}},
		{"enough places for several", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "49", "producer.concurrency": "8", "run.producers": "3",
		}, nil},
		{"evaluations too", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "49", "producer.concurrency": "24", "eval.at": "producers", "eval.every": "1", "producer.evaluations": "4",
		}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 28 episodes at once can hold all 49 of sandbox.most while each waits " +
				"for another, until its call fails: set sandbox.most to 57 or more, or producer.concurrency to 20 or less",
		}},
		{"evaluations alone", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "8", "producer.concurrency": "1", "eval.at": "producers", "eval.every": "1", "producer.evaluations": "4",
		}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 5 episodes at once can hold all 8 of sandbox.most while each waits " +
				"for another, until its call fails: set sandbox.most to 11 or more",
		}},
		{"scores of the trainer", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "49", "producer.concurrency": "24", "eval.every": "1", "eval.concurrency": "8",
		}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 32 episodes at once, 8 of them of scores (eval.concurrency), " +
				"can hold all 49 of sandbox.most while each waits for another, until its call fails: set sandbox.most to 65 or more, " +
				"or producer.concurrency to 16 or less",
		}},
		{"few questions", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "4", "producer.concurrency": "1", "eval.every": "1", "eval.questions": "2",
		}, []string{
			"an episode of task mine takes 3 places (" + both + "), and 3 episodes at once, 2 of them of scores (eval.concurrency), " +
				"can hold all 4 of sandbox.most while each waits for another, until its call fails: set sandbox.most to 7 or more, " +
				"or score elsewhere (eval.at: producers) or fewer at once",
		}},
		{"scores elsewhere", "{type: command, run: [agent]}", "dir: /opt", map[string]string{
			"sandbox.most": "49", "producer.concurrency": "24", "eval.every": "1", "eval.at": "trainer",
		}, nil},
		{"a shared server", "{type: command, run: [agent]}", "shared: true", map[string]string{"sandbox.most": "25", "producer.concurrency": "24"}, []string{
			"an episode of task mine takes 2 places (agents.mine, tools.python and tools.shell), and 24 episodes at once beside the shared tools.server " +
				"can hold all 25 of sandbox.most while each waits for another, until its call fails: set sandbox.most to 26 or more, or " +
				"producer.concurrency to 23 or less",
		}},
		{"a place for the shared server", "{type: command, run: [agent]}", "shared: true", map[string]string{
			"sandbox.most": "26", "producer.concurrency": "24",
		}, nil},
	} {
		file := filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(file, []byte(`
tasks:
  mine: {type: dataset, files: [x.jsonl], agent: mine, tools: [python, server, shell]}
agents:
  mine: `+c.agent+`
tools:
  server: {type: mcp, command: [server], allow: ["*"], `+c.server+`}
`), 0o600))
		c.flags["run.dir"] = t.TempDir()
		if c.flags["eval.every"] == "" {
			c.flags["eval.every"] = "0"
		}
		cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: c.flags})
		require.NoError(t, err, c.name)
		require.Greater(t, cfg.Trainer.Tickets(), 24, "or the episodes at once are fewer")
		require.Equal(t, c.want, FewPlaces(cfg, cfg.Run.Producers, c.flags["eval.at"] == ""), c.name)
	}
}

// Finding 12a.6, at tool workers, and 13 R7: the sessions of a tool worker are counted by the places that they take, by task; a server that all sessions
// share takes one place beside them.
func TestAToolWorkerTakesNoMoreSessionsThanItHasPlaces(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
sandbox: {most: 8}
tasks:
  both: {type: dataset, files: [x.jsonl], tools: [python, shell, own, common]}
  none: {type: dataset, files: [x.jsonl], tools: [calculator, common]}
  here: {type: dataset, files: [x.jsonl], tools: [files, calculator]}
tools:
  python: {on: workers}
  shell: {on: workers}
  calculator: {on: workers}
  own: {type: mcp, command: [server], allow: ["*"], on: workers}
  common: {type: mcp, command: [server], allow: ["*"], on: workers, shared: true}
`), 0o600))
	cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: map[string]string{"run.dir": t.TempDir()}})
	require.NoError(t, err)
	most, places := workerPlaces(cfg)
	require.Equal(t, 7, most)
	require.Equal(t, map[string]int{"both": 2}, places)
}

// Finding 15a.4: a tool worker takes no more sessions of a task than its Starlark workers have places for.
func TestAToolWorkerTakesNoMoreSessionsThanItsToolsHaveRoomFor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
tasks:
  one: {type: dataset, files: [x.jsonl], tools: [starlark, calculator]}
  two: {type: dataset, files: [x.jsonl], tools: [starlark, small]}
  none: {type: dataset, files: [x.jsonl], tools: [calculator, here]}
tools:
  starlark: {on: workers, workers: 8, sessions_per_worker: 4}
  small: {type: starlark, on: workers, workers: 3}
  calculator: {on: workers}
  here: {type: starlark, workers: 1}
`), 0o600))
	cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: map[string]string{"run.dir": t.TempDir()}})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"one": 32, "two": 3}, mostSessions(cfg))
}

// Finding 15a.4: an episode that has a place waits for a Starlark worker in its own time, of which the configuration is told before the run. An episode
// that takes no other place is not cut off, and nothing is said.
func TestATaskWithOtherPlacesAndFewStarlarkWorkersIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, tools, agent string
		concurrency        string
		want               []string
	}{
		{"no other place", "[starlark, calculator]", "{type: chat}", "24", nil},
		{"enough workers", "[starlark, python]", "{type: chat}", "8", nil},
		{"a sandbox", "[starlark, python]", "{type: chat}", "24", []string{
			"tools.starlark has room for 8 sessions of task mine, of whose episodes 24 at once take other places (tools.python) too: those that " +
				"have one wait for its room in their own time: raise tools.starlark.workers until it has room for 24, or set producer.concurrency to 8 or less",
		}},
		{"the agent's", "[starlark]", "{type: command, run: [agent]}", "9", []string{
			"tools.starlark has room for 8 sessions of task mine, of whose episodes 9 at once take other places (agents.mine) too: those that " +
				"have one wait for its room in their own time: raise tools.starlark.workers until it has room for 9, or set producer.concurrency to 8 or less",
		}},
		{"two", "[starlark, large]", "{type: chat}", "24", []string{
			"tools.starlark has room for 8 sessions of task mine, of whose episodes 24 at once take other places (tools.large) too: those that " +
				"have one wait for its room in their own time: raise tools.starlark.workers until it has room for 24, or set producer.concurrency to 8 or less",
		}},
		{"at tool workers", "[away, python]", "{type: chat}", "24", nil},
	} {
		file := filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(file, []byte(`
tasks:
  mine: {type: dataset, files: [x.jsonl], agent: mine, tools: `+c.tools+`}
agents:
  mine: `+c.agent+`
tools:
  starlark: {workers: 4, sessions_per_worker: 2}
  large: {type: starlark}
  away: {type: starlark, workers: 1, on: workers}
`), 0o600))
		cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: map[string]string{
			"run.dir": t.TempDir(), "eval.every": "0", "producer.concurrency": c.concurrency,
		}})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, FewPlaces(cfg, cfg.Run.Producers, true), c.name)
	}
}
