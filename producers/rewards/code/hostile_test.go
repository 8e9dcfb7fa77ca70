//go:build linux && (amd64 || arm64)

package code

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

// Finding A10c of the agents' review: a wrong program that took its judge's right to start processes gave its ticket back in place of scoring 0. What goes wrong
// once a program has run is tried in another sandbox, and is the program's where it comes again.
func TestAProgramCannotSendItsTicketBack(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, nil)
	r := open(t, m, nil)
	const take = "import os, resource\nfor pid in {os.getppid(), 1}:\n    for r in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):\n        try: resource.prlimit(pid, r, (1, 1))\n        except (OSError, ValueError): pass\n"
	const many = "import os, time\nfor _ in range(10000):\n    try:\n        if os.fork() == 0:\n            os.setsid()\n            while True: time.sleep(60)\n    except OSError: break\n"
	const opens = "import os\nfor fd in range(3, 1024):\n    try: os.open('/proc/%d/fd/%d' % (os.getppid(), fd), os.O_RDWR)\n    except OSError: pass\n"
	for name, program := range map[string]string{"limits": take, "processes": many, "descriptors": opens} {
		for kind, hidden := range map[string]string{"programs": programs, "functions": functions, "statements": statements, "check": checked} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				t.Parallel()
				if name == "processes" && kind != "functions" {
					fulltest.Need(t, "as many processes as a sandbox takes")
				}
				require.Zero(t, passed(t, r, hidden, program+"print('wrong')\ndef add(a, b): return 7"))
			})
		}
	}
}

// A judge that can start no process is not believed before another sandbox said the same.
func TestWhatTheJudgeTellsOfLostProcessesIsReadByWhoRan(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`{"begun": true}` + "\n" + `{"lost": "OSError"}`:                     true,
		`{"begun": true}` + "\n" + `{"test": 0, "out": "{\"lost\": \"x\"}"}`: false,
		`{"begun": true}` + "\n" + `{"machine": "OSError"}`:                  false,
	} {
		require.Equal(t, want, judgeHadNoProcess([]byte(line)), line)
	}
}

// Finding A11 of the agents' review: an exception that ends a loop in silence passed the tests that loop.
func TestAnExceptionThatEndsLoopsPassesNothing(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, nil)
	r := open(t, m, nil)
	for _, hidden := range []string{
		`{"entry":"f","code":["def check(candidate):\n    xs, ys = [1, 2, 3], [1, 4, 9]\n    for got, want in zip(map(candidate, xs), ys):\n        assert got == want"]}`,
		`{"code":["assert all(map(lambda p: f(p[0]) == p[1], [(1, 1), (2, 4)]))"]}`,
		`{"code":["assert not any(map(lambda p: f(p[0]) != p[1], [(1, 1), (2, 4)]))"]}`,
		`{"code":["assert all(iter(lambda: f(2) == 4, 5))"]}`,
		`{"code":["assert all(v == 4 for v in filter(f, [1, 2]))"]}`,
		`{"code":["for v in map(f, [1, 2]):\n    assert v == 4"]}`,
	} {
		for _, raised := range []string{"StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "type('StopIteration', (StopIteration,), {})"} {
			require.Zero(t, passed(t, r, hidden, "def f(x):\n    raise "+raised), "%s: %s", raised, hidden)
		}
	}
	honest := `{"code":["assert list(map(f, [1, 2])) == [1, 4]", "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"]}`
	require.InDelta(t, 1, passed(t, r, honest, "def f(x):\n    if x < 0: raise ValueError('x')\n    return x * x"), 0)
}

// Finding A19 of the agents' review: a function that is named as a module of the standard library was the module in the tests' eyes.
func TestAProgramMayBeNamedAsAModule(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, nil)
	r := open(t, m, nil)
	for _, name := range []string{"bisect", "copy", "select", "token", "queue", "calendar", "code", "secrets", "operator", "numbers", "plain"} {
		for _, test := range []string{"assert %s(2) == 4", "assert list(map(%s, [2])) == [4]", "for f in [%s]:\n    assert f(2) == 4"} {
			hidden, err := json.Marshal(map[string]any{"code": []string{fmt.Sprintf(test, name)}})
			require.NoError(t, err)
			require.InDelta(t, 1, passed(t, r, string(hidden), "def "+name+"(x): return 2 * x"), 0, test, name)
			require.Zero(t, passed(t, r, string(hidden), "def "+name+"(x): return 3 * x"), test, name)
		}
	}
	// A module whose functions a test uses is Python's, whatever the program calls so.
	const uses = `{"code": ["assert math.isclose(f(2), 4)", "assert copy.copy(f(2)) == 4"]}`
	const fakes = "class math:\n    isclose = staticmethod(lambda *a: True)\nclass copy:\n    copy = staticmethod(lambda *a: 4)\n"
	require.Zero(t, passed(t, r, uses, fakes+"def f(x): return 3 * x"))
	require.InDelta(t, 1, passed(t, r, uses, fakes+"def f(x): return 2 * x"), 0)
}

// Finding A18 of the agents' review: a value of another type was taken for what was asked.
func TestAValueIsUnwrappedByItsPromptAlone(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, nil)
	r := open(t, m, func(c *Config) { c.TestTimeout = 10 * time.Second })
	for _, c := range []struct {
		name, tests, body string
		want              float64
	}{
		{"a list that is wanted", `{"input": [5], "output": [5]}, {"input": [0], "output": []}`, "[n] if n else []", 1},
		{"a value for a list", `{"input": [5], "output": [5]}, {"input": [0], "output": []}`, "n if n else []", 0.5},
		{"all are wrapped", `{"input": [5], "output": [5]}, {"input": [0], "output": [0]}`, "n", 1},
		{"all are wrapped, lists", `{"input": [5], "output": [[5, 5]]}, {"input": [0], "output": [[0, 0]]}`, "[n, n]", 1},
		{"texts that are wanted", `{"input": [5], "output": "5"}, {"input": [0], "output": "0"}`, "str(n)", 1},
		{"numbers for texts", `{"input": [5], "output": "5"}, {"input": [0], "output": "0"}`, "n", 0},
		{"truth for a text", `{"input": [5], "output": "true"}`, "n == 5", 0},
		{"a list for a text", `{"input": [5], "output": "[5]"}`, "[n]", 0},
		{"none for a list", `{"input": [5], "output": [null]}, {"input": [1], "output": [2, 3]}`, "None if n == 5 else [2, 3]", 0.5},
		{"texts of JSON on both sides", `{"input": "5", "output": "[5]"}, {"input": "1", "output": "[1]"}`, "[n]", 1},
		{"one output is no JSON", `{"input": "5", "output": "5"}, {"input": "1", "output": "one"}`, "n if n == 5 else 'one'", 0.5},
	} {
		hidden := `{"entry": "f", "tests": [` + c.tests + `]}`
		require.InDelta(t, c.want, passed(t, r, hidden, "def f(n): return "+c.body), 1e-9, c.name)
		// How many tests are run does not say how outputs are written.
		if strings.Contains(c.tests, "}, {") {
			one := open(t, m, func(c *Config) { c.Tests = 1 })
			if c.want == 0.5 && c.name != "one output is no JSON" {
				require.Zero(t, passed(t, one, hidden, "def f(n): return "+c.body), c.name)
			}
		}
	}
}
