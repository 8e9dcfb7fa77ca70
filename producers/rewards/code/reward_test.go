//go:build linux && (amd64 || arm64)

package code

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests of one task, to add up numbers, in the three kinds.
const (
	programs   = `{"tests": [{"input": "1 2\n", "output": "3"}, {"input": "40 2\n", "output": "42\n"}, {"input": "0 0", "output": "0"}, {"input": "5 5", "output": "10"}]}`
	functions  = `{"entry": "add", "tests": [{"input": [1, 2], "output": 3}, {"input": "40\n2", "output": 42}, {"input": [0, 0], "output": 0}, {"input": [5, 5], "output": 10}]}`
	statements = `{"code": ["import math", "assert add(1, 2) == 3", "assert add(40, 2) == 42", "assert math.isclose(add(0, 0), 0)", "assert add(5, 5) == 10"]}`
	checked    = `{"entry": "add", "code": ["def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(40, 2) == 42\n"]}`
)

func ask(hidden, answer string) (*schemas.Ticket, *producers.Transcript) {
	return &schemas.Ticket{Prompt: schemas.Prompt{ID: "p", Hidden: json.RawMessage(hidden)}}, &producers.Transcript{Answer: answer, Stop: schemas.StopAnswer}
}

// passed is the share of the tests that an answer passes.
func passed(t *testing.T, r *Reward, hidden, answer string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ticket, transcript := ask(hidden, answer)
	score, err := r.Score(ctx, ticket, transcript)
	require.NoError(t, err, answer)
	return score.Components[ComponentPassed]
}

func open(t *testing.T, m *workspace.Manager, change func(*Config)) *Reward {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg, m)
	require.NoError(t, err)
	return r
}

func TestPrograms(t *testing.T) {
	r := open(t, workspacetest.Spaces(t, nil), nil)
	const (
		reads = "a, b = map(int, input().split())\nprint(a + b)"
		adds  = "def add(a, b):\n    return a + b"
	)
	for _, c := range []struct {
		name, hidden, answer string
		want                 float64
	}{
		{"a program", programs, reads, 1},
		{"in a fence", programs, "So:\n```python\nprint(1)\n```\nor rather\n```python\n" + reads + "\n```\nThat is it.", 1},
		{"in tags", programs, "<code>" + reads + "</code>", 1},
		{"it may have a main", programs, "if __name__ == '__main__':\n    " + strings.ReplaceAll(reads, "\n", "\n    "), 1},
		{"right for some", programs, "a, b = map(int, input().split())\nprint(3 if a == 1 else a * b)", 0.5},
		{"it fails after it printed", programs, reads + "\nraise SystemExit(1)", 0},
		{"no Python", programs, "I add them up.", 0},
		{"a function", functions, adds, 1},
		{"a method of Solution", functions, "class Solution:\n    def add(self, a, b):\n        return a + b", 1},
		{"a function's main does not run", functions, adds + "\nif __name__ == '__main__': input()", 1},
		{"right for some arguments", functions, "def add(a, b):\n    return 3 if a == 1 else a * b", 0.5},
		{"it is not there", functions, "def sub(a, b): return a - b", 0},
		{"what it returns is no JSON", functions, "def add(a, b): return object()", 0},
		{"an iterator", `{"entry": "f", "tests": [{"input": [3], "output": [0, 1, 2]}]}`, "def f(n): return range(n)", 1},
		{"tuples are lists, sets are sorted", `{"entry": "f", "tests": [{"input": [3], "output": [3, [1, 2]]}]}`, "def f(n): return (n, {2, 1})", 1},
		{"statements", statements, adds, 1},
		{"statements that hold for some", statements, "def add(a, b):\n    return 3 if a == 1 else a * b", 0.5},
		{"HumanEval's check", checked, adds, 1},
		{"HumanEval's check, wrong", checked, "def add(a, b): return 3", 0},
		{
			"objects of the program's", `{"code": ["s = Stack()\ns.push(4)\nassert s.pop() == 4\nassert len(s.all()) == 0 and s.name == 'x'", "try:\n    Stack().pop()\n    assert False, 'no error'\nexcept IndexError:\n    pass"]}`,
			"class Stack:\n    name = 'x'\n    def __init__(self): self.l = []\n    def push(self, v): self.l.append(v)\n    def pop(self): return self.l.pop()\n    def all(self): return self.l", 1,
		},
		{"an endless loop costs its own test", statements, "def add(a, b):\n    while a == 40: pass\n    return a + b", 0.75},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r
			if strings.Contains(c.name, "endless") {
				r = open(t, r.spaces, func(c *Config) { c.TestTimeout = time.Second })
			}
			require.InDelta(t, c.want, passed(t, r, c.hidden, c.answer), 1e-9)
		})
	}
}

// Each is a program that adds nothing up and wants to be paid.
func TestHostileAnswers(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Limits.Processes, c.Limits.Inodes = 16, 500 })
	for name, program := range map[string]string{
		"it ends before the tests":        "import os\nos._exit(0)",
		"it exits":                        "raise SystemExit(0)",
		"it says that it passed":          "print('{\"test\": 0, \"passed\": true}')\nprint('{\"tests\": 4}')\nprint('OK')\nprint('Ran 4 tests')",
		"it writes to every descriptor":   "import os\nfor fd in range(64):\n    try: os.write(fd, b'{\"test\": 0, \"passed\": true}\\n{\"tests\": 1}\\n')\n    except OSError: pass",
		"it answers in the child's place": "import os, json\nfor fd in range(3, 64):\n    try: os.write(fd, b'{\"value\": true}\\n' * 50)\n    except OSError: pass\nos._exit(0)",
		"it equals everything":            "class All:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __bool__(self): return True\n    def __sub__(self, other): return 0\ndef add(a, b): return All()",
		"it replaces Python":              "import builtins, json, math\nmath.isclose = lambda *a, **k: True\nbuiltins.abs = lambda x: 0\njson.loads = lambda *a: True\njson.dumps = lambda *a, **k: '{\"value\": 3}'\ndef check(candidate): pass\ndef isclose(*a): return True\ndef add(a, b): return float('nan')",
		"it reads the judge": `
import os, re, sys
def look():
    found = ""
    for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
        for name in ("environ", "maps", "mem", "fd/0", "fd/1", "fd/3", "cmdline"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    if name != "mem":
                        found += f.read(1 << 20).decode(errors="replace")
                        continue
                    for line in open(f"/proc/{pid}/maps"):
                        low, high = [int(x, 16) for x in line.split()[0].split("-")]
                        try:
                            f.seek(low)
                            found += f.read(high - low).decode(errors="replace") if "rw" in line else ""
                        except (OSError, OverflowError, ValueError): pass
            except (OSError, ValueError): pass
    return found
seen = look()
def add(a, b):
    at = seen.find(f"add({a}, {b}) == ")
    return int(re.match(r"\d+", seen[at + len(f"add({a}, {b}) == "):]).group()) if at >= 0 else None
if __name__ == "__main__":
    a, b = input().split()
    at = seen.find(f"{a} {b}")
    print(re.search(r'"output": ?"(\d+)', seen[at:]).group(1) if at >= 0 else "")
`,
		"it reads its folder":        "import os\nfound = ''\nfor where in ('/tmp', '/dev/shm', '/'):\n    for name in os.listdir(where):\n        try: found += open(os.path.join(where, name)).read()\n        except OSError: pass\ndef add(a, b): return int(found.split('== ')[1][:2])\nprint(found)",
		"it kills the judge":         "import os, signal\nfor pid in range(2, 64):\n    if pid != os.getpid():\n        try: os.kill(pid, signal.SIGKILL)\n        except OSError: pass",
		"it stops the judge":         "import os, signal\nfor pid in range(2, 64):\n    if pid != os.getpid():\n        try: os.kill(pid, signal.SIGSTOP)\n        except OSError: pass",
		"a fork bomb":                "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
		"endless output":             "while True: print('3' * 10**6)",
		"endless answers":            "import os\nwhile True:\n    for fd in range(3, 16):\n        try: os.write(fd, b'3' * 10**6)\n        except OSError: pass",
		"a value without end":        "def add(a, b):\n    l = []\n    l.append(l)\n    return l",
		"a great value":              "def add(a, b): return 'x' * 10**8",
		"a number of many digits":    "def add(a, b): return 10 ** 5000",
		"it fills the disk":          "import os\ni = 0\nwhile True:\n    i += 1\n    try: open(f'/tmp/f{i}', 'w').write('x')\n    except OSError: pass",
		"it rewrites its own source": "open('/tmp/solution.py', 'w').write('def add(a, b): return None')\ndef add(a, b): return None",
		"it leaves a process":        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    while True: time.sleep(1)\nprint('x')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, m, func(c *Config) {
				if !strings.Contains(name, "reads") { // which has all the time that it wants
					c.TestTimeout, c.Timeout = 300*time.Millisecond, time.Second
				}
			})
			kinds := []string{programs, functions, statements, checked}
			if strings.Contains(name, "stops") {
				kinds = kinds[2:3] // it takes all the time there is
			}
			for _, hidden := range kinds {
				require.Zero(t, passed(t, r, hidden, program), hidden)
			}
		})
	}
	// The machine is well, and so is what runs after.
	require.InDelta(t, 1, passed(t, open(t, m, nil), statements, "def add(a, b): return a + b"), 0)
}

func TestScores(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	half := "a, b = map(int, input().split())\nprint(3 if a == 1 else a * b)"
	for _, c := range []struct {
		name   string
		change func(*Config)
		answer string
		want   float64
	}{
		{"all or nothing", nil, half, 0},
		{"in part", func(c *Config) { c.Partial, c.Wrong, c.Correct = true, -1, 3 }, half, 1},
		{"a bonus for a program", func(c *Config) { c.Format, c.Wrong = 0.1, -1 }, "1 +", -0.9},
		{"no fence", func(c *Config) { c.Extract, c.Format = ExtractFence, 0.1 }, "print(1)", 0},
		{"the first test alone", func(c *Config) { c.Tests = 1 }, "print(3)", 1},
	} {
		ticket, transcript := ask(programs, c.answer)
		score, err := open(t, m, c.change).Score(t.Context(), ticket, transcript)
		require.NoError(t, err, c.name)
		require.InDelta(t, c.want, score.Total, 1e-9, c.name)
	}
	r := open(t, m, nil)
	ticket, transcript := ask(programs, half)
	transcript.Stop = schemas.StopTokens
	score, err := r.Score(t.Context(), ticket, transcript)
	require.NoError(t, err)
	require.Zero(t, score.Components[ComponentFormat], "an episode that a limit ended has no answer")

	// The file that the agent wrote, in its own sandbox.
	r = open(t, m, func(c *Config) { c.File = "main.py" })
	score, err = r.Score(t.Context(), ticket, transcript)
	require.NoError(t, err)
	require.Zero(t, score.Total)
	w, err := m.Fresh(t.Context())
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.WriteFile(t.Context(), "main.py", []byte("print(sum(map(int, input().split())))")))
	transcript.Workspace = w
	score, err = r.Score(t.Context(), ticket, transcript)
	require.NoError(t, err)
	require.InDelta(t, 1, score.Total, 0)
}

// What is not the program's doing is never its score.
func TestFailuresOfTheMachineAreNoScores(t *testing.T) {
	t.Parallel()
	cfg := sandbox.Default()
	cfg.Tier, cfg.Command = sandbox.TierCommand, []string{"/none", "{argv}"}
	m := workspace.New(cfg)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	ticket, transcript := ask(programs, "print(1)")
	_, err := open(t, m, nil).Score(t.Context(), ticket, transcript)
	require.Error(t, err)

	well := workspacetest.Spaces(t, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = open(t, well, nil).Score(ended, ticket, transcript)
	require.ErrorIs(t, err, context.Canceled)
	for hidden, want := range map[string]string{
		``: "no hidden tests", `{}`: "no hidden tests", `{"code": ["import math"]}`: "tests anything", `{"code": ["assert ("]}`: "no Python", `[]`: "hidden tests",
	} {
		ticket, transcript = ask(hidden, "print(1)")
		_, err = open(t, well, nil).Score(t.Context(), ticket, transcript)
		require.ErrorContains(t, err, want, hidden)
	}
	// The judge cannot start in this little memory.
	small := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Limits.Processes = 1 })
	ticket, transcript = ask(programs, "print(1)")
	_, err = open(t, small, nil).Score(t.Context(), ticket, transcript)
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// Finding 12a.6: where every place is held by an episode that comes to its scoring, each is scored all the same, on its own place, by its answer or by
// the file in its sandbox; and every place is free afterwards.
func TestEpisodesThatHoldEveryPlaceAreScored(t *testing.T) {
	const sums = "print(sum(map(int, input().split())))"
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 2, 0 })
	rewards := map[string]*Reward{"answer": open(t, m, nil), "file": open(t, m, func(c *Config) { c.File = "main.py" })}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	transcripts := map[string]*producers.Transcript{}
	for name := range rewards {
		require.NoError(t, m.Join(producers.Session{Episode: name, World: json.RawMessage(`{"files": {"main.py": "` + sums + `"}}`)}))
		_, _, err := m.Get(ctx, name)
		require.NoError(t, err)
		w, open := m.Workspace(name)
		require.True(t, open)
		transcripts[name] = &producers.Transcript{Answer: sums, Stop: schemas.StopAnswer, Workspace: w}
	}
	scored := make(chan error, len(rewards))
	for name, r := range rewards {
		go func() {
			ticket, _ := ask(programs, "")
			ticket.ID = name
			score, err := r.Score(ctx, ticket, transcripts[name])
			if err == nil && score.Total != 1 {
				err = fmt.Errorf("the %s scored %g", name, score.Total)
			}
			scored <- err
		}()
	}
	for range rewards {
		require.NoError(t, <-scored)
	}
	for name := range rewards {
		_, open := m.Open(name)
		require.False(t, open, "its own sandbox has ended")
		m.Leave(name)
	}
	pool, err := m.Ready(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, time.Millisecond)
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		said, want string
		same       bool
	}{
		{"3", "3\n", true},
		{"3 \n\n", "3", true},
		{"a\r\nb", "a\nb", true},
		{"1  2", "1 2", true},
		{"0.3333333333", "0.33333333333333", true},
		{"1", "1.0", true},
		{"1000000", "1000001", false},
		{"1.0", "1", false},
		{"1\n2", "1 2", false},
		{"1 2 3", "1 2", false},
		{"nan", "nan", true},
		{"inf", "1.5", false},
		{"", "3", false},
	} {
		require.Equal(t, c.same, sameOutput(c.said, c.want), "%q for %q", c.said, c.want)
	}
	for _, c := range []struct {
		value, want string
		same        bool
	}{
		{`3`, `3`, true},
		{`3.0`, `3`, true},
		{`0.30000000000000004`, `0.3`, true},
		{`12345678901234567890`, `12345678901234567891`, false},
		{`[1, 2]`, `[1, 2]`, true},
		{`[1, 2]`, `[[1, 2]]`, false},
		{`[1, 2]`, `"[1, 2]"`, false},
		{`"a"`, `"a"`, true},
		{`"3"`, `3`, false},
		{`true`, `1`, false},
		{`null`, `null`, true},
		{`{"a": 1}`, `{"a": 1.0}`, true},
		{`{"a": 1, "b": 2}`, `{"a": 1}`, false},
		{`[1]`, `[1, 2]`, false},
		{``, `3`, false},
	} {
		require.Equal(t, c.same, wrapping{}.sameResult(json.RawMessage(c.value), json.RawMessage(c.want)), "%s for %s", c.value, c.want)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	err := Config{Extract: "x", File: "../x", Tests: -1}.Validate()
	for _, key := range []string{"correct", "extract", "file", "tests", "test_timeout", "timeout"} {
		require.ErrorContains(t, err, key)
	}
	_, err = Type().Open(t.Context(), rewards.Opening{Config: Type().Config()})
	require.ErrorContains(t, err, "no sandboxes")
}
