// Package python_test holds the package for Python against its own tests, its types and, installed from a wheel, a run.
package python_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/internal/realpython"
)

// findPython returns the machine's interpreter; without one, or where it lacks a module, the test is skipped by name.
func findPython(t *testing.T, modules ...string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: the client was not run")
	}
	for _, module := range modules {
		if exec.CommandContext(t.Context(), path, "-c", "import "+module).Run() != nil {
			t.Skipf("%s has no module %s: the wheel was not installed", path, module)
		}
	}
	return path
}

// runIn runs a program in a folder and returns what it prints.
func runIn(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheClientPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	out, err := runIn(t, ".", findPython(t), "-m", "unittest", "discover", "-s", "tests")
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^Ran \d\d tests in`, out)
}

// The client, its tests and the examples that use it pass mypy --strict.
func TestTheClientIsTyped(t *testing.T) {
	t.Parallel()
	out, err := runIn(t, ".", realpython.Interpreter(t, "mypy"), "-m", "mypy", "--strict", "--cache-dir", t.TempDir(), "weir", "tests",
		filepath.Join("..", "examples", "python-agent", "short.py"))
	require.NoError(t, err, out)
}

// A wheel for this machine is installed by pip without an index, gives the program and the client, and trains an agent in Python. A wheel that is cut
// or spoilt, and a wheel for another machine, are refused.
func TestAWheelIsInstalledAndTrains(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "builds a program")
	if runtime.GOOS != "linux" {
		t.Skip("the program is built for linux")
	}
	python, dir := findPython(t, "pip", "venv"), t.TempDir()
	wheel := buildWheel(t, dir, runtime.GOARCH)
	refusedWheels(t, python, dir, wheel)

	env := filepath.Join(dir, "venv")
	out, err := runIn(t, dir, python, "-m", "venv", "--without-pip", env)
	require.NoError(t, err, out)
	out, err = install(t, python, env, wheel)
	require.NoError(t, err, out)
	bin := func(name string) string { return filepath.Join(env, "bin", name) }
	version, err := runIn(t, dir, bin("weir"), "version")
	require.NoError(t, err, version)
	require.Contains(t, version, "weir 0.0.1-test (")
	out, err = runIn(t, dir, bin("python"), "-m", "weir", "version")
	require.NoError(t, err, out)
	require.Equal(t, version, out)
	out, err = runIn(t, dir, bin("python"), "-c", "import weir; print(weir.__version__)")
	require.NoError(t, err, out)
	require.Equal(t, "0.0.1\n", out)

	at := serveAgent(t, bin("python"))
	tree, err := filepath.Abs("..")
	require.NoError(t, err)
	runs := filepath.Join(dir, "runs")
	out, err = runIn(t, tree, bin("weir"), "up", "--config", "examples/python-agent/run.yaml", "--run.dir", runs, "--agents.outside.service.url", "http://"+at+"/",
		"--trainer.steps", "2", "--trainer.batch_groups", "4", "--eval.questions", "8", "--eval.test_questions", "8", "--telemetry.listen", "127.0.0.1:0",
		"--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0")
	require.NoError(t, err, out)
	require.Contains(t, out, "step 2/2")

	out, err = runIn(t, dir, bin("python"), "-c", readRun, runs)
	require.NoError(t, err, out)
	require.Equal(t, "python-agent steps 1 2 last tested\ntrained 2\nthe same\n", out)
}

// readRun reads a run by the client: its steps, the steps of its trained trajectories, and one of these with its tokens.
const readRun = `
import sys, weir
run, = weir.runs(sys.argv[1])
records = list(run.metrics())
print(run.name, "steps", *[r.step for r in records if r.type == "step_done" and "reward/mean" in r], "last", records[-1].type)
trained = [t for t in run.trajectories() if t.fate == "trained"]
print("trained", len({t.step for t in trained}))
whole = run.trajectory(trained[-1].id)
print("the same" if trained[-1].question in str(whole) and str(trained[-1].tokens) in str(whole) else whole)
`

// buildWheel builds the program for an architecture and packs it.
func buildWheel(t *testing.T, dir, arch string) string {
	t.Helper()
	tree, err := filepath.Abs("..")
	require.NoError(t, err)
	program := filepath.Join(dir, "weir-"+arch)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/weir-rl/weir/internal/cli.version=0.0.1-test", "-o", program, "./cmd/weir")
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := runIn(t, tree, "go", "run", "./internal/wheel", program, "0.0.1", dir)
	require.NoError(t, err, text)
	return strings.TrimSpace(text)
}

// install installs a wheel into an environment by the machine's pip.
func install(t *testing.T, python, env, wheel string) (string, error) {
	t.Helper()
	return runIn(t, filepath.Dir(env), python, "-m", "pip", "--python", filepath.Join(env, "bin", "python"), "install", "--no-index", "--no-compile", wheel)
}

// refusedWheels tries wheels that must not be installed.
func refusedWheels(t *testing.T, python, dir, wheel string) {
	t.Helper()
	env := filepath.Join(dir, "other")
	out, err := runIn(t, dir, python, "-m", "venv", "--without-pip", env)
	require.NoError(t, err, out)
	whole, err := os.ReadFile(wheel)
	require.NoError(t, err)
	spoilt := append([]byte(nil), whole...)
	spoilt[len(spoilt)/2] ^= 1 // within the program
	name := filepath.Base(wheel)
	foreign := strings.NewReplacer("x86_64", "aarch64", "aarch64", "x86_64").Replace(name)
	for kind, c := range map[string]struct {
		name, want string
		data       []byte
	}{
		"cut":                 {name, "has an invalid wheel|is invalid|not a zip file", whole[:len(whole)-1000]},
		"spoilt":              {name, "Bad CRC-32", spoilt},
		"for another machine": {foreign, "is not a supported wheel on this platform", whole},
	} {
		at := filepath.Join(dir, strings.ReplaceAll(kind, " ", "-"))
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, c.name), c.data, 0o600))
		out, err := install(t, python, env, filepath.Join(at, c.name))
		require.Error(t, err, kind)
		require.Regexp(t, c.want, out, kind)
	}
}

// serveAgent serves examples/python-agent/short.py and returns its address.
func serveAgent(t *testing.T, python string) string {
	t.Helper()
	reserved, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reserved.Release()) })
	_, port, err := net.SplitHostPort(reserved.Address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, python, "-B", filepath.Join("..", "examples", "python-agent", "short.py"), port)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", reserved.Address)
		return err == nil && c.Close() == nil
	}, 2*time.Minute, 20*time.Millisecond)
	return reserved.Address
}
