package assembly

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// Finding 12a.6, its other half: where an episode takes several places and all of them can be held by episodes that wait for another, the configuration
// is told before the run, by its keys.
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
		cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: c.flags})
		require.NoError(t, err, c.name)
		require.Greater(t, cfg.Trainer.Tickets(), 24, "or the episodes at once are fewer")
		require.Equal(t, c.want, FewPlaces(cfg), c.name)
	}
}

// Finding 12a.6, at tool workers: a session stays with its worker, so that a worker takes no more of them than it has places for, and an episode beyond
// goes to a worker that has some.
func TestAToolWorkerTakesNoMoreSessionsThanItHasPlaces(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]int{"shell": 8, "calculator": 256} {
		cfg, _, err := Resolve(builtin.Doors(), config.Sources{Flags: map[string]string{
			"run.dir": t.TempDir(), "sandbox.most": "8", "sandbox.warm": "0", "tasks.countries.tools": tool, "tools." + tool + ".on": "workers",
		}})
		require.NoError(t, err)
		c, err := OpenTasks(t.Context(), builtin.Doors(), cfg, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Equal(t, want, newToolsRole(process{cfg: cfg}, nil, c).own.Sessions, tool)
		require.NoError(t, c.Close())
	}
}
