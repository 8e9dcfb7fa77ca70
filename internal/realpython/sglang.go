package realpython

import (
	"os/exec"
	"testing"
)

// SGLang is the path of a Python interpreter with SGLang and the packages that it imports on a processor: the interpreter that VLLMVariable names, whose
// environment has both. The test is skipped where there is none.
func SGLang(t testing.TB) string {
	t.Helper()
	python := VLLMPython(t, "sglang")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import soundfile, msgspec, zmq").CombinedOutput(); err != nil {
		t.Skipf("%s=%s cannot import what SGLang's server needs: make python-vllm installs it: %.400s", VLLMVariable, python, out)
	}
	return python
}
