// Package examples_test runs what stands in this folder.
package examples_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards/httpreward"
	"github.com/weir-rl/weir/producers/tools/httptool"
	"github.com/weir-rl/weir/schemas"
)

// A module outside the tree brings a task, an agent, a tool, a reward and a loss in one file of at most 150 lines. It builds with
// no network, in a folder elsewhere, and trains.
func TestAModuleOfItsOwnTrains(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "builds and runs a program")
	program, run := buildOutside(t, "own-agent")
	out := run(program, "up", "--run.dir", filepath.Join(filepath.Dir(program), "runs"), "--trainer.steps", "3", "--trainer.batch_groups", "4",
		"--eval.questions", "8", "--eval.test_questions", "8", "--telemetry.listen", "127.0.0.1:0", "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0")
	require.Contains(t, out, "step 3/3")
	require.Regexp(t, `(?m)^ *boxes +\d`, out, "the score of the task's own questions")
}

// A module outside the tree trains an agent from its main, with a task, a reward and a loss of its own that has a key, and takes the error
// of a wrong configuration apart.
func TestAModuleOfItsOwnEmbedsARun(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "builds and runs a program")
	program, run := buildOutside(t, "embed", "WEIR_TRAINER__STEPS=2", "WEIR_TRAINER__LOSS__OPTIONS__HIGH=0.4", "WEIR_BROKER__LISTEN=127.0.0.1:0", "WEIR_VIEW__LISTEN=")
	require.Regexp(t, `^version 2: [01]\.\d\d of the test questions are answered rightly\n$`, run(program))

	wrong := exec.CommandContext(t.Context(), program)
	wrong.Dir, wrong.Env = filepath.Dir(program), append(os.Environ(), "WEIR_TRAINER__ETA=-1", "WEIR_TRAINER__STEPS=x", "WEIR_TRAINER__LOSS__OPTIONS__HIGH=1.5")
	out, err := wrong.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "key trainer.eta, value -1: must not be negative\n")
	require.Contains(t, string(out), "key trainer.steps, ")
	require.Contains(t, string(out), "key trainer.loss.options.high, value 1.5: ")
}

// buildOutside builds an example that is a module of its own in a folder outside the tree. run runs a program there, with variables over
// those of this process, and returns what it prints.
func buildOutside(t *testing.T, example string, environ ...string) (program string, run func(name string, args ...string) string) {
	t.Helper()
	tree, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(example, name))
		require.NoError(t, err)
		text := string(data)
		switch name {
		case "main.go":
			require.LessOrEqual(t, strings.Count(text, "\n"), 150)
		case "go.mod":
			require.Contains(t, text, "=> ../..")
			text = strings.ReplaceAll(text, "=> ../..", "=> "+tree)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	run = func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off"), environ...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v: %s\nWhere go.mod is stale: cd examples/%s && cp ../../go.sum . && GOFLAGS=-mod=mod go build -o /dev/null .", name, args, out, example)
		return string(out)
	}
	run("go", "vet", ".")
	run("go", "build", "-o", example, ".")
	return filepath.Join(dir, example), run
}

// The service in Python answers as a tool and as a reward, by the standard library alone and by the package weir-rl.
func TestAToolAndARewardInPython(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"service.py", "short.py"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			askToolAndReward(t, name)
		})
	}
}

// askToolAndReward starts a service of http-tool and asks for a call and a score.
func askToolAndReward(t *testing.T, name string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: the service in Python was not run")
	}
	code, err := os.ReadFile(filepath.Join("http-tool", name))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(code), "\n"), 30)
	reserved, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reserved.Release()) })
	address := reserved.Address
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	service := exec.CommandContext(t.Context(), python, filepath.Join("http-tool", name), port)
	service.Stderr, service.Env = io.Discard, append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "python"), "PYTHONDONTWRITEBYTECODE=1")
	require.NoError(t, service.Start())
	t.Cleanup(func() { _ = service.Wait() }) // the test's context ends it
	require.Eventually(t, func() bool {      // a loaded machine starts Python slowly
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, 2*time.Minute, 20*time.Millisecond)

	config := httptool.DefaultConfig()
	config.URL = "http://" + address + "/calculator"
	tool, err := httptool.New(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tool.Close()) })
	require.Equal(t, "calculator", tool.Spec().Name)
	for i, want := range map[int]string{1: "7", 12: "40"} {
		got, err := tool.Call(t.Context(), producers.Call{Episode: "e", Index: i, Arguments: fmt.Sprintf("%s + 2 * 3", strconv.Itoa(map[int]int{1: 1, 12: 34}[i]))})
		require.NoError(t, err)
		require.Equal(t, want, got.Text)
	}
	_, err = tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: "__import__('os')"})
	require.EqualError(t, err, "want numbers with + and *")
	require.NotErrorIs(t, err, producers.ErrUnavailable, "the agent is told")

	rewarding := httpreward.DefaultConfig()
	rewarding.URL = "http://" + address + "/score"
	reward, err := httpreward.New(rewarding)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reward.Close()) })
	score, err := reward.Score(t.Context(), &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"7"}}}, &producers.Transcript{
		Answer: "7", Turns: []producers.TranscriptTurn{{Tool: "calculator"}, {}},
	})
	require.NoError(t, err)
	require.InDelta(t, 0.98, score.Total, 1e-12)
	require.Equal(t, map[string]float64{"exact_match": 1, "calls": 1}, score.Components)
}
