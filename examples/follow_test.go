package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stand-in for the client writes down what it is called with. The follower sends each record once, also when it is started again.
func TestTheFollowerSendsEachRecordOnce(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: examples/follow_wandb.py was not run")
	}
	for _, client := range []string{"wandb", "trackio"} {
		dir, stand := t.TempDir(), t.TempDir()
		calls := filepath.Join(stand, "calls")
		require.NoError(t, os.WriteFile(filepath.Join(stand, client+".py"), []byte(`
def note(*words):
    print(*words, file=open("`+calls+`", "a"))
def init(project, name, resume, config, id="none"): note("init", project, name, id, resume, sorted(config))
def log(numbers): note("log", sorted(numbers.items()))
def finish(): note("finish")
`), 0o600))
		folder := filepath.Join(dir, "mine")
		require.NoError(t, os.Mkdir(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("run: {name: mine}\n"), 0o600))
		write := func(text string) {
			f, err := os.OpenFile(filepath.Join(folder, "metrics.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			_, err = f.WriteString(text)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		follow := func(args ...string) string {
			cmd := exec.CommandContext(t.Context(), python, append([]string{"follow_wandb.py", folder, "--project", "p", "--to", client}, args...)...)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+stand)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			told, err := os.ReadFile(calls)
			require.NoError(t, err)
			require.NoError(t, os.Remove(calls))
			return string(told)
		}
		write(`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}` + "\n{cut\n" + `{"type":"run_done","step":1`)
		id := map[string]string{"wandb": "mine", "trackio": "none"}[client]
		require.Equal(t, "init p mine "+id+" allow ['config.yaml']\nlog [('policy_version', 1), ('reward/mean', 0.5)]\nfinish\n", follow("--once"))
		write(`,"policy_version":1}` + "\n" + `{"type":"tested","step":2,"policy_version":2,"metrics":{"time/total":3}}` + "\n")
		told := follow()
		require.Equal(t, 1, strings.Count(told, "log"), told)
		require.Contains(t, told, "log [('policy_version', 2), ('time/total', 3)]\nfinish\n")
	}
}
