package command

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/lab/load"
	"github.com/weir-rl/weir/internal/lab/streambench"
	"github.com/weir-rl/weir/internal/lab/weightsbench"
)

// TestMain puts this program on the PATH, so that tests run its commands as processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir-lab": func() { os.Exit(Main()) }})
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": runForStatus},
	})
}

// runForStatus runs a command and holds its exit status to its first argument: status N command...
func runForStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status code command [argument...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Exec returns it as it is
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if args[0] != strconv.Itoa(code) {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

// program is the path of this program as TestMain has laid it out. A test of processes is skipped under the race detector, which
// would see nothing of them but a slower engine; go test without -race runs it.
func program(t *testing.T) string {
	t.Helper()
	if raced {
		t.Skip("the processes that it starts are not watched by the race detector")
	}
	path, err := exec.LookPath("weir-lab")
	require.NoError(t, err)
	return path
}

// weirLab runs a command and returns what it printed.
func weirLab(t *testing.T, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), program(t), args...)
	c.Stdout, c.Stderr = &out, &complaint
	require.NoError(t, c.Run(), "weir-lab %s\n%s\n%s", strings.Join(args, " "), complaint.String(), out.String())
	return out.String()
}

// read reads a file that must be there.
func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return data
}

// Every key of the JSON reports is in snake case.
func TestKeysOfTheJSONAreInSnakeCase(t *testing.T) {
	t.Parallel()
	snake := regexp.MustCompile(`^[a-z0-9_]+$`)
	var check func(at string, v any)
	check = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				require.Regexp(t, snake, key, at)
				check(at+"."+key, below)
			}
		case []any:
			for _, below := range v {
				check(at, below)
			}
		}
	}
	for name, report := range map[string]any{
		"chaos":         &chaos.Report{Audit: &audit.Report{}},
		"bench stream":  streambench.Report{Ways: []streambench.WayReport{{}}},
		"bench weights": weightsbench.Report{Runs: []*weightsbench.Deltas{{Versions: []weightsbench.Delta{{}}}}, Ways: []*weightsbench.Swaps{{}}},
		"load":          load.Report{},
	} {
		text, err := json.Marshal(report)
		require.NoError(t, err, name)
		var back any
		require.NoError(t, json.Unmarshal(text, &back), name)
		check(name, back)
	}
}
