package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// checked is weir config check over a configuration in a folder.
func checked(t *testing.T, dir string, args ...string) error {
	t.Helper()
	var out bytes.Buffer
	cmd := (&app{doors: builtin.Doors(), console: console{out: &out, err: &out}}).rootCommand()
	cmd.SetArgs(append([]string{"config", "check", "--config", filepath.Join(dir, "run.yaml")}, args...))
	return cmd.ExecuteContext(t.Context())
}

// A row that gives the tool sql no database is refused before the run, with its place, its field and what to do; a run whose episodes
// may call nothing takes it.
func TestARowWithoutADatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(rows, []byte(`{"question":"how many goats ?","answer":"4"}
{"question":"how many cows ?","answer":"3","tools_kwargs":{"sql":{"script":"CREATE TABLE cows (n)"}}}
{"question":"what is in the shop ?","answer":"tea","tools_kwargs":{"sql":{"create_kwargs":{"database":"shop"}}}}
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte("tasks:\n  q:\n    type: dataset\n    train_files: ["+rows+
		"]\n    agent: search\n    tools: [sql]\n    reward: {type: qa}\n"), 0o600))
	err := checked(t, dir)
	require.Equal(t, exitConfig, exitStatus(t.Context(), err))
	require.ErrorContains(t, err, rows+":1: tool sql: the prompt's data are at fault: world.script: there is no database: give the row a script")
	require.ErrorContains(t, err, rows+`:3: tool sql: the prompt's data are at fault: world.database: "shop": the tool's path is ""`)
	require.NotContains(t, err.Error(), rows+":2")
	require.NoError(t, checked(t, dir, "--trainer.limits.max_turns", "0"))
}

// A tool that is told the accepted answers runs where the episode does.
func TestAToolThatIsToldAnswersIsOnNoWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	example, err := os.ReadFile(filepath.Join(root, "examples", "simulated-search", "run.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), example, 0o600))
	require.NoError(t, checked(t, dir))
	err = checked(t, dir, "--tools.search.on", "workers")
	require.Equal(t, exitConfig, exitStatus(t.Context(), err))
	require.ErrorContains(t, err, "tools.search.on: workers: the tool is told the accepted answers")
}
