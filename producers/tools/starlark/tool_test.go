package starlark

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is how long a test waits for what must come.
const patient = 2 * time.Minute

// newTool makes a tool whose time limit no loaded machine meets.
func newTool(t *testing.T, change func(*Config), worlds ...tasks.World) *Tool {
	t.Helper()
	cfg := DefaultConfig()
	cfg.CellTimeout = patient
	if change != nil {
		change(&cfg)
	}
	tool, err := New(cfg, worlds)
	require.NoError(t, err)
	return tool
}

// open opens a session, which the test closes.
func open(t *testing.T, tool *Tool, episode string) {
	t.Helper()
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), episode)) })
}

// run runs a cell of an episode.
func run(t *testing.T, tool *Tool, episode, code string) producers.Observation {
	t.Helper()
	o, err := tool.Call(t.Context(), producers.Call{Episode: episode, Arguments: code})
	require.NoError(t, err, code)
	return o
}

func TestCells(t *testing.T) {
	t.Parallel()
	tool := newTool(t, nil)
	open(t, tool, "e")
	for _, c := range []struct{ name, code, want string }{
		{"a value", "1 + 2", "3"},
		{"a text's value", `"a" + "b"`, `"ab"`},
		{"None is not shown", "None", ""},
		{"a statement", "s = 17 * 23", ""},
		{"variables stay", "s + 1", "392"},
		{"words with spaces between", " s = s + 17 * 23 ; print ( s )", "782"},
		{"print and a value", "print('x', 2)\ns", "x 2\n782"},
		{"top-level loops and reassignment", "n = 0\nfor i in range(4):\n    n += i\nwhile n < 10:\n    n = n + 1\nn", "10"},
		{"recursion", "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nf(20)", "2432902008176640000"},
		{"functions stay", "f(5)", "120"},
		{"an indented cell", "    a = 1\n    if a:\n        print('yes')\n", "yes"},
		{"modules", "math.sqrt(16.0) + sum([1, 2]), json.encode({'a': [1]})", `(7.0, "{\"a\":[1]}")`},
		{"sets", "len(set([1, 1, 2]))", "2"},
		{"no value but of the last expression", "1\n2", "2"},
		{"nothing", "", ""},
		{"a comment", "# 1", ""},
	} {
		o := run(t, tool, "e", c.code)
		require.Equal(t, c.want, o.Text, c.name)
		require.Zero(t, o.Errors, c.name)
	}
}

func TestErrorsAreCutToTheCell(t *testing.T) {
	t.Parallel()
	tool := newTool(t, nil)
	open(t, tool, "e")
	require.Empty(t, run(t, tool, "e", "def f(x):\n    return 1 // x\n").Text)
	for _, c := range []struct{ code, want string }{
		{"nothing", "Error: line 1: undefined: nothing"},
		{"1 // 0", "Error: floored division by zero"},
		{"x = 1\ny = 1 // 0", "Traceback:\n  cell 4, line 2\nError: floored division by zero"},
		{"f(0)", "Traceback:\n  cell 5, line 1\n  cell 1, line 2, in f\nError: floored division by zero"},
		{"x = (", "Error: line 2: got end of file, want primary expression"},
		{"import os", "Error: line 1: got import, want primary expression"},
		{"open('/etc/passwd')", "Error: line 1: undefined: open"},
		{"load('a', 'b')", "Error: cannot load a: there is nothing to load"},
		{strings.Repeat("(", 8000), "Error: line 1: excessive nesting"},
	} {
		o := run(t, tool, "e", c.code)
		require.Contains(t, o.Text, c.want)
		require.NotContains(t, o.Text, "/", "no path of the machine")
		require.Equal(t, [2]int{1, 1}, [2]int{o.Outputs, o.Errors})
	}
	o := run(t, tool, "e", "print('before')\n1 // 0")
	require.Equal(t, "before\nTraceback:\n  cell 11, line 2\nError: floored division by zero", o.Text)
	require.Equal(t, [2]int{2, 1}, [2]int{o.Outputs, o.Errors}, "as a notebook counts its outputs")
	require.Equal(t, "1", run(t, tool, "e", "x").Text, "what a failed cell had set stays")
}

// Attempts 74 and 75: what a cell can do to its interpreter. Each runs in its own worker, and the tool goes on.
func TestAttemptsToExhaustTheInterpreter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		want       []string // one of them
		gone       bool     // the variables are, however fast the machine
	}{
		{"a list of 2^62", "list(range(1 << 62))", []string{"the interpreter failed", "memory"}, true},
		{"a list of 10^10", "list(range(10000000000))", []string{"memory", "the interpreter failed"}, true},
		{"a string that doubles", "x = 'ab'\nwhile True:\n    x = x + x", []string{"memory"}, true},
		{"a number that squares", "x = 3\nfor i in range(60):\n    x = x * x", []string{"ran for more than 1s", "memory"}, false},
		{"an endless loop", "while True:\n    pass", []string{"took more than 10000000 steps", "ran for more than 1s"}, false},
		{"deep recursion", "def f(n):\n    return f(n + 1)\nf(0)", []string{"stack overflow", "steps", "ran for more than 1s", "memory"}, false},
		{"a list in itself", "a = []\na.append(a)\nb = []\nb.append(b)\na == b", []string{"maximum recursion depth"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := newTool(t, func(cfg *Config) {
				cfg.CellTimeout, cfg.MemoryBytes = time.Second, 128<<20
				if c.gone {
					cfg.CellTimeout = time.Minute // the memory is to end it, on a slow machine too
				}
			})
			open(t, tool, "e")
			run(t, tool, "e", "kept = 1")
			o := run(t, tool, "e", c.code)
			require.Equal(t, 1, o.Errors)
			found := false
			for _, want := range c.want {
				found = found || strings.Contains(o.Text, want)
			}
			require.True(t, found, "%q holds none of %q", o.Text, c.want)
			if c.gone {
				require.Contains(t, o.Text, "all variables are gone")
			}
			after := run(t, tool, "e", "kept").Text
			if strings.Contains(o.Text, gone) {
				require.Contains(t, after, "undefined: kept", "a new interpreter")
			} else {
				require.Equal(t, "1", after)
			}
		})
	}
}

func TestACellIsBounded(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.CodeBytes, cfg.OutputBytes, cfg.Steps = 200, 20, 1000 })
	open(t, tool, "e")
	o := run(t, tool, "e", strings.Repeat("#", 201))
	require.Equal(t, "Error: the cell is longer than 200 bytes", o.Text, "refused unread")
	require.Nil(t, tool.sessions["e"].worker, "no process has begun")

	require.Equal(t, "aaaaaaaaaaaaaaaaaaaa\n... (13 more bytes)", run(t, tool, "e", "print(32 * 'a')").Text)
	require.Equal(t, "ééééééééé\n... (7 more bytes)", run(t, tool, "e", "print('a' and '')\nprint(12 * 'é')").Text[1:], "cut between characters")
	o = run(t, tool, "e", "x = 0\nfor i in range(100000):\n    x = i")
	require.Equal(t, "Error: the cell took more than 1000 steps", o.Text)
	require.Equal(t, "1", run(t, tool, "e", "int(x > 0)").Text, "and its variables stay")
	flood := run(t, tool, "e", "for i in range(50):\n    print(i)\nfail('end')")
	require.Contains(t, flood.Text, "more bytes")
	require.Contains(t, flood.Text, "Error: fail: end", "an error is told though the output is full")
}

func TestSubmitEndsTheCell(t *testing.T) {
	t.Parallel()
	tool := newTool(t, nil)
	open(t, tool, "e")
	for code, want := range map[string]string{
		"submit(41 + 1)": "42", "submit('fort y')": "fort y", "submit(['a', 1])": `["a", 1]`, "def f():\n    submit(1)\nf()": "1", "submit(None)": "None",
	} {
		o := run(t, tool, "e", "print('said')\n"+code+"\nprint('never')")
		require.NotNil(t, o.Answer, code)
		require.Equal(t, want, *o.Answer)
		require.Equal(t, "said", o.Text)
		require.Zero(t, o.Errors)
	}
	require.Nil(t, run(t, tool, "e", "submit()").Answer)

	without := newTool(t, func(cfg *Config) { cfg.Submit, cfg.NotepadBytes = false, 0 })
	open(t, without, "e")
	require.Contains(t, run(t, without, "e", "submit(1)").Text, "undefined: submit")
	require.Contains(t, run(t, without, "e", "notepad").Text, "undefined: notepad")
}

func TestSingleCalls(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(c *Config) { c.SingleCalls = true }, &book{})
	open(t, tool, "e")
	for _, code := range []string{
		"s = 1", "echo ( 1 ) + 1", "echo ( 1 ) ; echo ( 2 )", "echo ( echo ( 1 ) )", "1", "blue", "print", "echo(x=1)", "echo(*[1])", "echo ( 1 + 1 )",
		"echo ( [ echo ( 1 ) ] )", "echo ( _ )", "for i in range(2): echo(i)", "def f(): return 1", "echo ( 1 ).a ( )", "(lambda: 1)()", "[1][0]", "",
	} {
		o := run(t, tool, "e", code)
		require.Equal(t, "Error: "+noSingleCall, o.Text, code)
		require.Equal(t, 1, o.Errors, code)
	}
	for _, c := range [][2]string{
		{"echo ( blue )", `["blue"]`},
		{"echo ( -7 )", "[-7]"},
		{`echo ( [ 1 , " a " ] )`, `[[1, " a "]]`},
		{`echo({"a": [2]})`, `[{"a": [2]}]`},
		{"notepad . add_facts ( blue )", ""},
		{"math.sqrt ( 81.0 )", "9.0"},
	} {
		o := run(t, tool, "e", c[0])
		require.Contains(t, o.Text, c[1], c[0])
		require.Zero(t, o.Errors, c[0])
		require.Equal(t, strings.Contains(c[0], "echo"), o.Notes == "", c[0])
	}
	run(t, tool, "e", "notepad.add_facts ( 8 )") // returns nothing
	require.Equal(t, "9.0", *run(t, tool, "e", "submit ( )").Answer, "the newest value")
	require.Equal(t, "3", *run(t, tool, "e", "submit ( 3 )").Answer)

	fresh := newTool(t, nil, &book{})
	open(t, fresh, "of cells")
	run(t, fresh, "of cells", "echo ( 9 )")
	require.Nil(t, run(t, fresh, "of cells", "submit ( )").Answer, "a cell of code says what it submits")
}

func TestNotepad(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.NotepadBytes = 80 })
	open(t, tool, "e")
	require.Empty(t, run(t, tool, "e", "x = 1").Notes)
	o := run(t, tool, "e", "notepad . add_facts ( 'blue' ) ; notepad.add_todo(['read', 'sum'])")
	require.Equal(t, "todo:\n[ ] read\n[ ] sum\nfacts:\n- blue", o.Notes)
	require.Empty(t, o.Text, "the methods return None")
	o = run(t, tool, "e", "notepad.finish_todo('read')\nnotepad.write_draft(12)\nprint(notepad)")
	require.Equal(t, "todo:\n[x] read\n[ ] sum\nfacts:\n- blue\ndraft:\n12", o.Notes)
	require.Equal(t, o.Notes, o.Text)
	o = run(t, tool, "e", "notepad.add_facts(100 * 'x')")
	require.Contains(t, o.Text, "the notepad holds 80 bytes at most")
	require.NotContains(t, o.Notes, "xx", "nothing of it was noted")
	require.Contains(t, run(t, tool, "e", "notepad.finish_todo('cook')").Text, `nothing to do is "cook"`)
	require.Contains(t, run(t, tool, "e", "notepad.add_facts()").Text, "takes a text or a list of texts")
	require.Contains(t, run(t, tool, "e", "notepad.nothing").Text, "no .nothing")
	require.Empty(t, run(t, tool, "e", "notepad.clear()").Notes)
}

// book is a world with a state: pages that are printed one by one.
type book struct {
	pages  []string
	closed *int
	given  []any
}

func (b *book) Open(s producers.Session) (tasks.Functions, error) {
	if s.Episode == "wrong" {
		return nil, errors.New("no such book")
	}
	return &book{pages: b.pages, closed: b.closed}, nil
}

func (b *book) Names() []string {
	return []string{"turn", "echo", "record", "away", "crash", "odd", "much"}
}
func (b *book) Values() map[string]any { return map[string]any{"blue": "blue", "limit": 7} }

func (b *book) Close() error {
	if b.closed != nil {
		*b.closed++
	}
	return nil
}

func (b *book) Call(_ context.Context, name string, args []any) (any, error) {
	switch name {
	case "turn":
		if len(b.pages) == 0 {
			return nil, errors.New("no more pages")
		}
		page := b.pages[0]
		b.pages = b.pages[1:]
		return tasks.Printed(page), nil
	case "echo":
		b.given = args
		return map[string]any{"got": args, "types": fmt.Sprintf("%T", args)}, nil
	case "record":
		return tasks.Record{"name": "x", "size": int64(3), "half": 2.0, "none": nil}, nil
	case "away":
		return nil, fmt.Errorf("the book's server: %w", producers.ErrUnavailable)
	case "odd":
		return func() {}, nil
	case "much":
		return []any{math.Inf(1)}, nil
	}
	panic("crash")
}

func TestFunctionsOfTheWorld(t *testing.T) {
	t.Parallel()
	closed := 0
	tool := newTool(t, nil, &book{pages: []string{"page one", "page two"}, closed: &closed})
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
	o := run(t, tool, "e", "x = turn()\nprint(x)")
	require.Equal(t, "page one\nNone", o.Text)
	require.Equal(t, "page two", run(t, tool, "e", "s = 0 ; turn ( )").Text)
	require.Equal(t, "Error: turn: no more pages", run(t, tool, "e", "turn()").Text)
	o = run(t, tool, "e", "echo(1, 2.0, -3.5, 'a', None, True, [1, (2,)], {'k': 1 << 70}, limit, blue)['got']")
	require.Equal(t, `[1, 2.0, -3.5, "a", None, True, [1, [2]], {"k": 1180591620717411303424}, 7, "blue"]`, o.Text)
	require.Equal(t, `["x", 3, 2.0, None]`, run(t, tool, "e", "r = record ( )\n[r . name, r.size, r.half, r.none]").Text)
	require.Equal(t, `struct(half = 2.0, name = "x", none = None, size = 3)`, run(t, tool, "e", "r").Text)
	require.Contains(t, run(t, tool, "e", "r.other").Text, "struct has no .other attribute")
	require.Contains(t, run(t, tool, "e", "echo(x = 1)").Text, "echo: takes no argument by name")
	require.Contains(t, run(t, tool, "e", "echo(lambda: 1)").Text, "echo: argument 1: a function cannot be given to it")
	require.Equal(t, `["turn"]`, run(t, tool, "e", "echo(turn)['got']").Text, "a function of the world stands for its name")
	require.Contains(t, run(t, tool, "e", "a = []\na.append(a)\necho(a)").Text, "a value nested deeper than 32")
	require.Contains(t, run(t, tool, "e", "echo(300000 * 'x')").Text, "a text of more than 262144 bytes")
	require.Contains(t, run(t, tool, "e", "echo({1: 2})").Text, "a dict with a int as key")
	require.Equal(t, "7", run(t, tool, "e", "limit").Text)
	require.NoError(t, tool.Close(t.Context(), "e"))
	require.Equal(t, 1, closed)
	require.NoError(t, tool.Close(t.Context(), "e"), "closed already")

	open(t, tool, "away")
	_, err := tool.Call(t.Context(), producers.Call{Episode: "away", Arguments: "away()"})
	require.ErrorIs(t, err, producers.ErrUnavailable, "the machinery's fault, whatever the cell does")
	require.ErrorContains(t, err, "the book's server")
	// Finding 12a.10 of the twelfth reader: a policy that chose such arguments had its ticket returned in the place of a bad reward.
	open(t, tool, "faults")
	for code, want := range map[string]string{
		"crash()": "crash: the function failed: crash",
		"odd()":   "odd: the result cannot be given to a cell: json: unsupported type",
		"much()":  "much: the result cannot be given to a cell: json: unsupported value: +Inf",
	} {
		require.Contains(t, run(t, tool, "faults", code).Text, want)
	}
	require.ErrorContains(t, tool.Open(t.Context(), producers.Session{Episode: "wrong"}), "no such book")
	require.ErrorContains(t, newTool(t, nil, &book{}, &book{}).Open(t.Context(), producers.Session{}), "two functions or values are named")
	for _, name := range []string{"a + b", "while", "", "submit"} {
		require.Error(t, (&session{functions: map[string]tasks.Functions{}}).addWorld(named(name)), name)
	}
	_, err = tool.Call(t.Context(), producers.Call{Episode: "nobody"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// named is a function of this name.
type named string

func (n named) Names() []string { return []string{string(n)} }

func (n named) Call(context.Context, string, []any) (any, error) { return nil, nil }

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	err := Config{NotepadBytes: -1, MemoryBytes: 1}.Validate()
	for _, key := range []string{"steps", "cell_timeout", "memory_bytes", "output_bytes", "code_bytes", "notepad_bytes", "sessions_per_worker", "workers"} {
		require.ErrorContains(t, err, key+":")
	}
	_, err = Type().Open(t.Context(), tools.Opening{Name: "mine", Config: &Config{}})
	require.ErrorContains(t, err, "steps: 0")
	made, err := Type().Open(t.Context(), tools.Opening{Name: "mine", Config: Type().Config()})
	require.NoError(t, err)
	require.Equal(t, Name, made.Spec().Name)
	require.Len(t, Type().Config().(*Config).Texts(), 5)
}
