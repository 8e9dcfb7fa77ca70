//go:build linux && (amd64 || arm64)

package shell

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a call of an episode's tool, whose world is JSON or "".
func open(t *testing.T, cfg Config, m *workspace.Manager, episode, world string) func(script string) (producers.Observation, error) {
	t.Helper()
	tool, err := New(cfg, m)
	require.NoError(t, err)
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode, World: []byte(world)}))
	t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), episode)) })
	return func(script string) (producers.Observation, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return tool.Call(ctx, producers.Call{Episode: episode, Arguments: script})
	}
}

func TestScripts(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.OutputBytes, cfg.ScriptBytes, cfg.CommandTimeout = 2000, 5000, 2*time.Second
	call := open(t, cfg, m, "e", `{"files": {"data/in.txt": "given\n"}, "other": 1}`)
	for _, c := range []struct {
		name, script, want string
		outputs, errors    int
	}{
		{"the world's files are there", "cat data/in.txt", "given", 1, 0},
		{"nothing is shown of what prints nothing", "x=1; mkdir a; echo hi > a/b", "", 0, 0},
		{"files stay, variables do not", `cat a/b; echo "[$x]"; pwd`, "hi\n[]\n/tmp", 1, 0},
		{"both outputs, in order", "echo one; echo two >&2; echo three", "one\ntwo\nthree", 1, 0},
		{"an exit status", "echo no; exit 3", "no\n" + exited + "3", 2, 1},
		{"a signal", "kill -9 $$", signalled, 1, 1},
		{"nothing to read", "cat; echo done", "done", 1, 0},
		{"the time is over, with all that was started", "sleep 1000 & echo begun; sleep 1000", "begun\n" + cfg.timedOut(), 2, 1},
		{"what is left behind does not hold the call", "sleep 1000 & echo gone", "gone", 1, 0},
		{"bytes that are no text", `printf '\377</info>'`, "\uFFFD</info>", 1, 0},
		{"a script too long", strings.Repeat("#", 5001), "Error: the script is longer than 5000 bytes", 1, 1},
		{"no network, no secrets", "env | grep -c . ; cat /etc/shadow 2>/dev/null; ls /root 2>/dev/null; true", "4", 1, 0},
	} {
		o, err := call(c.script)
		require.NoError(t, err, c.name)
		if c.name == "no network, no secrets" {
			require.Regexp(t, `^\d$`, o.Text, c.name)
			continue
		}
		require.Equal(t, c.want, o.Text, c.name)
		require.Equal(t, [2]int{c.outputs, c.errors}, [2]int{o.Outputs, o.Errors}, c.name)
	}
	o, err := call("echo one\nif")
	require.NoError(t, err)
	require.Regexp(t, `(?s)^one\n.*2.*yntax error.*\nError: exit status 2$`, o.Text)
	o, err = call("nonesuch")
	require.NoError(t, err)
	require.Regexp(t, `(?s)nonesuch.*not found.*\nError: exit status 127$`, o.Text)
	o, err = call("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(o.Text, "0\n1\n2\n"))
	require.Contains(t, o.Text, "bytes left out")
	require.True(t, strings.HasSuffix(o.Text, "19999"), o.Text[len(o.Text)-30:])
	_, err = call("echo \x00")
	require.ErrorContains(t, err, "NUL")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
}

// Endless output is ended with its script's time, and costs no memory.
func TestEndlessOutput(t *testing.T) {
	cfg := DefaultConfig()
	cfg.CommandTimeout, cfg.OutputBytes = time.Second, 100
	o, err := open(t, cfg, workspacetest.Spaces(t, nil), "e", "")("while :; do echo y; done")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(o.Text, cfg.timedOut()), o.Text)
	require.Less(t, len(o.Text), 300)
}

// What a script does to its own sandbox is told to the agent, and is never the machinery's failure: else its ticket would be tried again for ever.
func TestWhatAScriptDoesToItsSandboxIsToldToTheAgent(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Limits.Inodes, c.Limits.Processes = 200, 12 })
	cfg := DefaultConfig()
	cfg.CommandTimeout = 5 * time.Second
	call := open(t, cfg, m, "e", `{"files": {"mine": "here"}}`)
	// Processes that fork whenever one may.
	_, err := call(`python3 -S -c 'import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.001)' > /dev/null 2>&1 &`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		o, err := call("true")
		require.NoError(t, err)
		return strings.Contains(o.Text, notStarted) && o.Errors == 1
	}, 2*time.Minute, time.Millisecond)

	call = open(t, cfg, m, "f", `{"files": {"mine": "here"}}`)
	o, err := call("mkdir many; cd many; i=0; while [ $i -lt 300 ]; do : > $i; i=$((i+1)); done; sleep 1000")
	require.NoError(t, err)
	require.Equal(t, gone, o.Text)
	o, err = call("cat mine; ls many")
	require.NoError(t, err)
	require.Contains(t, o.Text, anew+"\nhere")
}

func TestAMachineWithoutSandboxesIsTheMachinerysFailure(t *testing.T) {
	t.Parallel()
	cfg := sandbox.Default()
	cfg.Tier, cfg.Command = sandbox.TierCommand, []string{"/none", "{argv}"}
	m := workspace.New(cfg)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	_, err := open(t, DefaultConfig(), m, "e", "")("true")
	require.Error(t, err)
}

func TestWorldsWithWrongFilesAreRefused(t *testing.T) {
	t.Parallel()
	m := workspace.New(sandbox.Default())
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	tool, err := New(DefaultConfig(), m)
	require.NoError(t, err)
	for _, world := range []string{`{"files": {"../x": "y"}}`, `{"files": {"/etc/x": "y"}}`, `{"files": {".": "y"}}`, `{"files": {"a": 1}}`} {
		require.ErrorContains(t, tool.Open(t.Context(), producers.Session{Episode: "e", World: []byte(world)}), "the world's files", world)
	}
	for _, world := range []string{``, `[]`, `{"files": ["of another tool"]}`, `{"x": 1}`} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e", World: []byte(world)}), world)
		require.NoError(t, tool.Close(t.Context(), "e"))
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	err := Config{OutputBytes: maxOutput + 1, ScriptBytes: maxScript + 1}.Validate()
	for _, key := range []string{"command_timeout", "output_bytes", "script_bytes", "program"} {
		require.ErrorContains(t, err, key)
	}
}
