//go:build linux && (amd64 || arm64)

package python

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct{}

func (world) Open(producers.Session) (tasks.Functions, error) { return &functions{}, nil }

type functions struct{ page int }

func (*functions) Names() []string { return []string{"add", "turn", "away", "book.title"} }

func (*functions) Values() map[string]any { return map[string]any{"limit": 7} }

func (f *functions) Call(_ context.Context, name string, args []any) (any, error) {
	switch name {
	case "add":
		if len(args) != 2 {
			return nil, errors.New("add takes two numbers")
		}
		return float64(args[0].(int64) + args[1].(int64)), nil
	case "turn":
		f.page++
		return tasks.Printed(fmt.Sprintf("page %d", f.page)), nil
	case "book.title":
		return "Weir", nil
	}
	return nil, producers.ErrUnavailable
}

func open(t *testing.T, cfg Config, m *workspace.Manager, episode string) func(code string) (producers.Observation, error) {
	t.Helper()
	tool, err := New(cfg, []tasks.World{world{}}, m)
	require.NoError(t, err)
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), episode)) })
	return func(code string) (producers.Observation, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return tool.Call(ctx, producers.Call{Episode: episode, Arguments: code})
	}
}

func TestCells(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.OutputBytes, cfg.CodeBytes, cfg.Prelude = 2000, 5000, "answer = 42"
	call := open(t, cfg, m, "e")
	for _, c := range []struct {
		name, code, want string
		outputs, errors  int
		answer, notes    string
	}{
		{"nothing is shown of an assignment", "x = 17 * 23", "", 0, 0, "", ""},
		{"variables stay, and the last value is shown", "x", "391", 1, 0, "", ""},
		{"what is printed comes before the value", "print('a')\nx + 1", "a\n392", 2, 0, "", ""},
		{"an indented cell", "  y = 2\n  y", "2", 1, 0, "", ""},
		{"a traceback has the cell's lines alone", "def f():\n  return 1/0\nf()", "Traceback (most recent call last):\n" +
			"  File \"<cell 5>\", line 3, in <module>\n    f()\n  File \"<cell 5>\", line 2, in f\n    return 1/0\n           ~^~\nZeroDivisionError: division by zero", 1, 1, "", ""},
		{"an error in the language", "1 +", "  File \"<cell 6>\", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax", 1, 1, "", ""},
		{"exit ends the cell and nothing else", "import sys; sys.exit(3)", "Traceback (most recent call last):\n  File \"<cell 7>\", line 1, in <module>\n" +
			"    import sys; sys.exit(3)\n                ^^^^^^^^^^^\nSystemExit: 3", 1, 1, "", ""},
		{"a function of the world", "add(2, 3) + limit", "12.0", 1, 0, "", ""},
		{"one that prints", "turn()", "page 1", 1, 0, "", ""},
		{"one that keeps state", "turn()", "page 2", 1, 0, "", ""},
		{"one with a point in its name", "book.title()", "'Weir'", 1, 0, "", ""},
		{"an error of the world's can be caught", "try: add(1)\nexcept RuntimeError as e: print('no:', e)", "no: add takes two numbers", 1, 0, "", ""},
		{"the prelude", "answer", "42", 1, 0, "", ""},
		{"the notepad", "notepad.add_facts('blue'); notepad.add_todo(['go on'])", "", 0, 0, "", "todo:\n[ ] go on\nfacts:\n- blue"},
		{"subprocesses write to the same output", "import subprocess; subprocess.run(['echo', 'hi']); 1", "hi\n1", 2, 0, "", "todo:\n[ ] go on\nfacts:\n- blue"},
		{"control bytes are text", "import os; os.write(1, b'\\xff</info>'); None", "\uFFFD</info>", 1, 0, "", "todo:\n[ ] go on\nfacts:\n- blue"},
		{"submit ends the cell with an answer", "submit(x)\nprint('not reached')", "", 0, 0, "391", "todo:\n[ ] go on\nfacts:\n- blue"},
		{"a cell too long", strings.Repeat("#", 5001), "Error: the cell is longer than 5000 bytes", 1, 1, "", ""},
	} {
		o, err := call(c.code)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, o.Text, c.name)
		require.Equal(t, [2]int{c.outputs, c.errors}, [2]int{o.Outputs, o.Errors}, c.name)
		require.Equal(t, c.notes, o.Notes, c.name)
		if c.answer == "" {
			require.Nil(t, o.Answer, c.name)
		} else {
			require.Equal(t, c.answer, *o.Answer, c.name)
		}
	}
	o, err := call("for i in range(10**5): print(i)")
	require.NoError(t, err)
	require.Contains(t, o.Text, "0\n1\n2\n")
	require.Contains(t, o.Text, "bytes left out")
	require.True(t, strings.HasSuffix(o.Text, "99999"), o.Text[len(o.Text)-30:])
	require.Less(t, len(o.Text), 2200)
	_, err = call("away()")
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

func TestLimitsOfTime(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.CellTimeout = 2 * time.Second
	call := open(t, cfg, m, "e")
	for _, step := range []struct{ code, want string }{
		{"x = 1; open('kept', 'w').write('here'); x", "1"},
		{"while True: pass", cfg.interruptedText()},
		{"x", "1"},
		{"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", cfg.killedText()},
		{"x", "NameError"},
		{"open('kept').read()", "'here'"},
		{"import os; os._exit(3)", ended + gone},
		{"import os; os.close(3)", gone},
		{"1", "1"},
	} {
		o, err := call(step.code)
		require.NoError(t, err, step.code)
		require.Contains(t, o.Text, step.want, step.code)
	}
}

// What holds the output open does not hold the turn: a cell ends with its reply.
func TestAProcessLeftBehindDoesNotHoldTheTurn(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	call := open(t, DefaultConfig(), m, "e")
	o, err := call("import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); print('done')")
	require.NoError(t, err)
	require.Equal(t, "done", o.Text)
}

// One sandbox an episode: the next has neither its variables nor its files.
func TestEpisodesShareNothing(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	first, second := open(t, DefaultConfig(), m, "a"), open(t, DefaultConfig(), m, "b")
	_, err := first("import json; json.dumps = lambda *a: 'x'; open('f', 'w').write('1'); v = 1")
	require.NoError(t, err)
	o, err := second("import json, os; print(json.dumps(1), os.listdir('.'), 'v' in globals())")
	require.NoError(t, err)
	require.Equal(t, "1 [] False", o.Text)
}

func TestRewardsLookIntoTheWorkspace(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	tool, err := New(DefaultConfig(), nil, m)
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, tool.Open(ctx, producers.Session{Episode: "e"}))
	_, open := tool.Workspace("e")
	require.False(t, open, "nothing runs before the first cell")
	_, err = tool.Call(ctx, producers.Call{Episode: "e", Arguments: "import os; open('out.txt', 'w').write('made'); os.symlink('/etc/passwd', 'l'); os.mkfifo('p')"})
	require.NoError(t, err)
	w, open := tool.Workspace("e")
	require.True(t, open)
	data, err := w.ReadFile(ctx, "out.txt", 10)
	require.NoError(t, err)
	require.Equal(t, "made", string(data))
	for _, name := range []string{"l", "p", "../etc/passwd", "/etc/passwd", "none"} {
		_, err = w.ReadFile(ctx, name, 1000)
		require.Error(t, err, name)
	}
	_, err = w.ReadFile(ctx, "out.txt", 3)
	require.ErrorContains(t, err, "longer than 3 bytes")
	r, err := w.Run(ctx, producers.Command{Argv: []string{"sh", "-c", "cat; cat in.txt; echo $K >&2; exit 4"}, Stdin: []byte("std"), Files: map[string][]byte{"in.txt": []byte("in")}, Env: []string{"K=v"}})
	require.NoError(t, err)
	require.Equal(t, []any{"stdin", "v\n", 4, false}, []any{string(r.Stdout), string(r.Stderr), r.Exit, r.TimedOut})
	r, err = w.Run(ctx, producers.Command{Argv: []string{"sleep", "1000"}, Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	require.True(t, r.TimedOut)
	require.NoError(t, tool.Close(ctx, "e"))
	_, open = tool.Workspace("e")
	require.False(t, open)
}
