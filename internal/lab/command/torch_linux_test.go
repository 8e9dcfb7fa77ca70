package command

import (
	"os"
	"os/exec"
	"testing"
)

// needTorch skips a test where Debian's Python has no PyTorch, and fails it in continuous integration or where WEIR_NEED_TORCH is
// set.
func needTorch(t *testing.T) {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return
		}
	}
	const missing = "the engine torch is not tested: no python3 here has PyTorch: apt-get install python3-torch"
	if os.Getenv("CI")+os.Getenv("WEIR_NEED_TORCH") != "" {
		t.Fatal(missing)
	}
	t.Skip("SKIPPED: " + missing)
}
