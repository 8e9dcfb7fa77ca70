package realpython

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// VLLMVariable is the environment variable with the path of a Python interpreter that has vLLM, such as
// $HOME/.cache/weir/vllm/bin/python. It is an environment of its own: vLLM pins a PyTorch.
const VLLMVariable = "WEIR_VLLM_PYTHON"

// VLLMPython is the path of that interpreter. The test is skipped where there is none, or it cannot import a module.
func VLLMPython(t testing.TB, module string) string {
	t.Helper()
	python := os.Getenv(VLLMVariable)
	if python == "" {
		t.Skipf("%s names no Python with %s: make python-vllm installs it", VLLMVariable, module)
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import "+module).CombinedOutput(); err != nil {
		t.Skipf("%s=%s cannot import %s: %.400s", VLLMVariable, python, module, out)
	}
	return python
}

// VLLM is the path of the program vllm beside the interpreter that VLLMVariable names. The test is skipped where there is none.
func VLLM(t testing.TB) string {
	t.Helper()
	python := os.Getenv(VLLMVariable)
	if python == "" {
		t.Skipf("%s names no Python with vLLM: make python-vllm installs a build for processors", VLLMVariable)
	}
	path, err := exec.LookPath(filepath.Join(filepath.Dir(python), "vllm"))
	if err != nil {
		t.Skipf("%s=%s has no program vllm beside it: make python-vllm installs it: %v", VLLMVariable, python, err)
	}
	return path
}
