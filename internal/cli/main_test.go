package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/ports"
)

// anyPort has the page and the broker of a run that a test starts listen on a free port, in place of the defaults.
var anyPort = map[string]string{"WEIR_VIEW__LISTEN": "127.0.0.1:0", "WEIR_BROKER__LISTEN": "127.0.0.1:0"}

// TestMain puts this program on the PATH, so that tests run its commands as processes.
func TestMain(m *testing.M) {
	for key, value := range anyPort {
		if os.Getenv(key) == "" { // a script, and a test that needs an address, gives its own
			_ = os.Setenv(key, value) // it is no wrong name
		}
	}
	testscript.Main(m, map[string]func(){
		"weir": func() { os.Exit(Main(builtin.Doors())) },
		"fakeserver": func() {
			os.Exit(fakeserver.Main(os.Args[1:], native.Backend{Options: native.Options{Threads: 1}}.NewDecoder))
		},
	})
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "shorten": shorten, "answered": answered, "companies": companies, "eventually": eventually},
		Setup: func(env *testscript.Env) error {
			port, err := ports.Reserve()
			if err != nil {
				return err
			}
			env.Defer(func() { _ = port.Release() })
			env.Setenv("ADDRESS", port.Address)
			for key, value := range anyPort {
				env.Setenv(key, value)
			}
			return nil
		},
	})
}

// status N command... runs a command and holds its exit status to N.
func status(ts *testscript.TestScript, neg bool, args []string) {
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
	if args[0] != strings.TrimSpace(jsonText(code)) {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

// shorten FILE... cuts files to half their length, as a full disk or a lost page does.
func shorten(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: shorten file...")
	}
	for _, name := range args {
		path := ts.MkAbs(name)
		info, err := os.Stat(path)
		ts.Check(err)
		ts.Check(os.Truncate(path, info.Size()/2))
	}
}

// answered ADDRESS waits until a process in the background takes connections there.
func answered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answered address")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if c, err := net.Dial("tcp", args[0]); err == nil {
			ts.Check(c.Close())
			return
		}
		<-tick.C
	}
	ts.Fatalf("nobody takes connections on %s", args[0])
}

// companies writes a newcomer's corpus: passages about 60 made-up companies, a question with one hop and one with two about
// each, and demonstrations of the 80 about the first 40, which are the training split.
func companies(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: companies")
	}
	random := rand.New(rand.NewPCG(3, 0))
	syllables := strings.Fields("ba do ki lu me no pa ri so tu ve za gra tri plo")
	taken := map[string]bool{}
	word := func(n int, end string) (w string) {
		for w == "" || taken[w] {
			w = ""
			for range n {
				w += syllables[random.IntN(len(syllables))]
			}
			w += end
		}
		taken[w] = true
		return w
	}
	type object = map[string]any
	files := map[string]*strings.Builder{}
	add := func(file string, row object) {
		if files[file] == nil {
			files[file] = &strings.Builder{}
		}
		fmt.Fprintln(files[file], jsonText(row))
	}
	for i := range 60 {
		company, founder, town := word(3, "corp"), word(2, "")+" "+word(3, ""), word(2, "ville")
		founded, born := company+" was founded by "+founder+" .", founder+" was born in "+town+" ."
		add("corpus.jsonl", object{"title": company, "text": founded})
		add("corpus.jsonl", object{"title": founder, "text": born})
		who, where := "who founded "+company+" ?", "where was the founder of "+company+" born ?"
		split := []string{"train", "train", "train", "train", "validation", "test"}[i/10]
		add("questions.jsonl", object{"question": who, "answers": []string{founder}, "source": "one hop", "split": split})
		add("questions.jsonl", object{"question": where, "answers": []string{town}, "source": "two hops", "split": split})
		if split == "train" {
			first := object{"search": company, "info": founded}
			add("demonstrations.jsonl", object{"question": who, "steps": []object{first}, "answer": founder})
			add("demonstrations.jsonl", object{"question": where, "steps": []object{first, {"search": founder, "info": born}}, "answer": town})
		}
	}
	for name, rows := range files {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(rows.String()), 0o644))
	}
}

// eventually PATTERN command... runs a command until what it prints matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually pattern command [argument...]")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		<-tick.C
	}
	ts.Fatalf("never printed %q", args[0])
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// binary is the path of this program as TestMain has laid it out. A test of processes is skipped under the race detector, which
// would see nothing of them but a slower engine; go test without -race runs it.
func binary(t *testing.T) string {
	t.Helper()
	if raced {
		t.Skip("the processes that it starts are not watched by the race detector")
	}
	path, err := exec.LookPath("weir")
	require.NoError(t, err)
	return path
}

// weir runs a command and returns what it printed.
func weir(t *testing.T, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), binary(t), args...)
	c.Stdout, c.Stderr = &out, &complaint
	require.NoError(t, c.Run(), "weir %s\n%s\n%s", strings.Join(args, " "), complaint.String(), out.String())
	return out.String()
}

// read reads a file that must be there.
func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return data
}
