// Package realpython finds the interpreter with the published Python packages that some tests hold Weir against: the real SDKs,
// servers and readers in the place of stand-ins. requirements.txt beside this file pins them; `make python` installs them into a
// virtual environment.
package realpython

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Variable is the environment variable with the interpreter's path, such as $HOME/.cache/weir/python/bin/python.
const Variable = "WEIR_PYTHON"

// Needed is the environment variable that, where it is not empty, has a test fail that would be skipped: for machines that have
// the packages.
const Needed = "WEIR_NEED_PYTHON"

// Interpreter is the path of the interpreter. The test is skipped, naming the missing package, where Variable names no interpreter
// or the interpreter cannot import a package of the modules.
func Interpreter(t testing.TB, modules ...string) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		if os.Getenv(Needed) != "" {
			t.Fatalf("%s is not set: make python prints what to set it to", Variable)
		}
		t.Skipf("%s names no Python with %s: make python installs them", Variable, strings.Join(modules, ", "))
	}
	out, err := exec.CommandContext(t.Context(), path, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skipf("%s=%s cannot import %s: %s", Variable, path, strings.Join(modules, ", "), lines[len(lines)-1])
	}
	return path
}

// Beside is the path of a program that make python puts beside the interpreter, such as mcp1/bin/mcp-server-sqlite. The test is skipped
// where it is missing.
func Beside(t testing.TB, interpreter, program string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(filepath.Dir(interpreter)), filepath.FromSlash(program))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s=%s has no %s beside it: make python installs it: %v", Variable, interpreter, program, err)
	}
	return path
}

// Run runs a program of the test's with the interpreter and returns its output. A program that fails, fails the test with its output.
func Run(t testing.TB, interpreter, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), interpreter, append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "WANDB_MODE=offline", "WANDB_SILENT=true", "DO_NOT_TRACK=1", "PYTHONDONTWRITEBYTECODE=1")
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", program, err, out, told.String())
	}
	return string(out)
}
