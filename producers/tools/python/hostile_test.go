//go:build linux && (amd64 || arm64)

package python

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tasks"
)

// flood calls functions over the session's own descriptor and never reads an answer, until both sides' buffers are full. It outlasts an
// interrupt, which may come before that.
const flood = `import sys, json
f = sys._getframe()
while 'self' not in f.f_locals: f = f.f_back
me = f.f_locals['self']
line = json.dumps({"id": me.id, "call": {"name": "turn", "args": []}}).encode() + b"\n"
while True:
    try: me.conn.sendall(line)
    except KeyboardInterrupt: pass`

// Finding A2 of the agents' review: a session that does not read what it is told keeps neither its time limit nor the end of ctx from Run, nor the episode's end.
func TestACellThatDoesNotReadItsAnswers(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.CellTimeout = time.Second
	call := open(t, cfg, m, "limit")
	o, err := call(flood)
	require.NoError(t, err)
	require.Equal(t, cfg.killedText(), o.Text)
	o, err = call("1 + 1")
	require.NoError(t, err)
	require.Equal(t, "2", o.Text, "the sandbox lives on, with a new interpreter")

	cfg.CellTimeout = time.Hour
	for _, c := range []struct {
		name string
		end  func(tool *Tool, cancel func())
		want error
	}{
		{"the call's end", func(_ *Tool, cancel func()) { cancel() }, context.Canceled},
		{"the episode's end", func(tool *Tool, _ func()) { require.NoError(t, tool.Close(t.Context(), "e")) }, producers.ErrUnavailable},
	} {
		counted := &counter{called: make(chan struct{}, 1)}
		tool, err := New(cfg, []tasks.World{counted}, m)
		require.NoError(t, err)
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := tool.Call(ctx, producers.Call{Episode: "e", Arguments: flood})
			ended <- err
		}()
		<-counted.called
		c.end(tool, cancel)
		require.ErrorIs(t, <-ended, c.want, c.name)
		cancel()
		require.NoError(t, tool.Close(context.Background(), "e"), c.name)
	}
}

// counter is a world whose one function says that it was called.
type counter struct{ called chan struct{} }

func (c *counter) Open(producers.Session) (tasks.Functions, error) { return c, nil }

func (*counter) Names() []string { return []string{"turn"} }

func (c *counter) Call(context.Context, string, []any) (any, error) {
	select {
	case c.called <- struct{}{}:
	default:
	}
	return strings.Repeat("x", 1<<16), nil
}

// Finding A2 of the agents' review, a variant: what a function makes of the end of the cell's time is the cell's own doing.
func TestAFunctionEndsWithTheCell(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.CellTimeout = time.Second
	tool, err := New(cfg, []tasks.World{slow{}}, m)
	require.NoError(t, err)
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
	t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), "e")) })
	o, err := tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: "wait()"})
	require.NoError(t, err)
	require.Contains(t, o.Text, cfg.interruptedText())
}

// slow is a world with a function that never answers, and says at its end that the service was away.
type slow struct{}

func (slow) Open(producers.Session) (tasks.Functions, error) { return slow{}, nil }

func (slow) Names() []string { return []string{"wait"} }

func (slow) Call(ctx context.Context, _ string, _ []any) (any, error) {
	<-ctx.Done()
	return nil, producers.ErrUnavailable
}

// Finding A10a of the agents' review: what the programs in a sandbox keep from a new interpreter is told to the agent, and is no failure of the machinery.
func TestASandboxWithoutRoomForAnInterpreter(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	call := open(t, DefaultConfig(), m, "e")
	// It takes whatever place a process leaves, and so that of the interpreter as well, soon after that has ended.
	const orphans = `import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            if os.fork() == 0: time.sleep(1e6)
        except OSError: time.sleep(0.001)`
	_, err := call(orphans)
	require.NoError(t, err)
	var o producers.Observation
	for t.Context().Err() == nil && !strings.Contains(o.Text, notStarted) {
		o, err = call("import os; os._exit(1)")
		require.NoError(t, err)
	}
	require.Equal(t, 1, o.Errors)
}

// Finding 12a.9: an episode that ends its sandbox while another waits for its place goes on in that place: its failure stays in training.
func TestAnEpisodeThatEndsItsSandboxKeepsItsPlace(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm, c.Inodes = 1, 0, 500 })
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	call := open(t, DefaultConfig(), m, "a")
	_, err = call("print(1)")
	require.NoError(t, err)
	require.NoError(t, m.Join(producers.Session{Episode: "b"}))
	defer m.Leave("b")
	waited := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _, err := m.Get(ctx, "b")
		waited <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	w, open := m.Open("a")
	require.True(t, open)
	o, err := call("import time\nfor i in range(5000): open(f'f{i}', 'w').close()\ntime.sleep(1000)")
	require.NoError(t, err)
	require.Contains(t, o.Text, gone)
	require.Eventually(t, w.Gone, time.Minute, time.Millisecond)
	o, err = call("print(2)")
	require.NoError(t, err, "the episode is the cause: its ticket must not go back")
	require.Equal(t, anew+"\n2", o.Text)
	cancel()
	require.ErrorIs(t, <-waited, producers.ErrUnavailable)
}

// Finding A10 of the agents' review: what an episode's programs keep from a reward's command is how that ended, and takes no episode out of training.
func TestWhatIsLeftInASandboxFailsTheRewardsCommand(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Disk, c.Inodes = 1<<20, 3000 })
	run := producers.Command{Argv: []string{"cat", "in.txt"}, Files: map[string][]byte{"in.txt": []byte("expected")}}
	for _, c := range []struct{ name, cell, want string }{
		{"nothing", "1", ""},
		{"a full disk", "f = open('full', 'wb', 0)\ntry:\n  while True: f.write(b'x' * 4096)\nexcept OSError: pass", "No space left"},
		{"a folder of the file's name", "import os; os.makedirs('in.txt/x')", "Is a directory"},
		{"no process to spare", "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(1e6)\nexcept OSError: pass", "BlockingIOError"},
		{"a sandbox that ends when it is scored", "import os, time\nif os.fork() == 0:\n  while not os.path.exists('in.txt'): time.sleep(0.001)\n" +
			"  for i in range(10**6): open(f'/dev/shm/{i}', 'w').close()\n  time.sleep(1e6)", "has ended"},
	} {
		tool, err := New(DefaultConfig(), nil, m)
		require.NoError(t, err)
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
		_, err = tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: c.cell})
		require.NoError(t, err, c.name)
		w, there := tool.Workspace("e")
		require.True(t, there, c.name)
		command := run
		if strings.Contains(c.want, "ended") {
			command.Argv = []string{"sleep", "1000000"} // until the sandbox ends
		}
		r, err := w.Run(t.Context(), command)
		require.NoError(t, err, c.name)
		require.Contains(t, string(r.Stderr), c.want, c.name)
		if c.want == "" {
			require.Equal(t, "expected", string(r.Stdout), c.name)
		} else {
			require.Equal(t, -1, r.Exit, c.name)
		}
		require.NoError(t, tool.Close(t.Context(), "e"))
	}
}

// Finding A10d of the agents' review: an answer beyond the bound is refused where it is given, and not by the trainer.
func TestAnAnswerHasABound(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.OutputBytes = 100
	call := open(t, cfg, m, "e")
	o, err := call("submit('x' * 101)")
	require.NoError(t, err)
	require.Nil(t, o.Answer)
	require.Contains(t, o.Text, "submit: the answer is longer than 100 bytes")
	o, err = call("import json, sys\nf = sys._getframe()\nwhile 'self' not in f.f_locals: f = f.f_back\nf.f_locals['self'].answer = 'x' * 101")
	require.NoError(t, err)
	require.Nil(t, o.Answer, "one that finds its session gives none either")
	o, err = call("submit('é' * 50)")
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", 50), *o.Answer)
}

// Finding A24 of the agents' review: a cell that writes beyond sandbox.file_size gets an error of Python's, and keeps its variables.
func TestAFileBeyondItsBoundIsAnError(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.FileSize = 1 << 20 })
	call := open(t, DefaultConfig(), m, "e")
	o, err := call("x = 7\nwith open('f', 'wb') as f: f.write(b'x' * (2 << 20))")
	require.NoError(t, err)
	require.Contains(t, o.Text, "OSError: [Errno 27] File too large")
	o, err = call("x")
	require.NoError(t, err)
	require.Equal(t, "7", o.Text)
}
