package torch_test

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needPython skips a test, and says so, where no Python with PyTorch is found. Where CI is set, as in continuous integration, or WEIR_NEED_TORCH,
// the test fails instead.
func needPython(t testing.TB) {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return
		}
	}
	if os.Getenv("CI")+os.Getenv("WEIR_NEED_TORCH") != "" {
		t.Fatal("no python3 with PyTorch: install it (Debian: apt install python3-torch)")
	}
	t.Skip("SKIPPED: no python3 with PyTorch: the engine torch is not tested (Debian: apt install python3-torch)")
}

// needTime skips a test in a short run: each starts several processes that import PyTorch.
func needTime(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes processes: a killed rank is tested in TestAKilledRankEndsTheGroup")
	}
}
