package torch_test

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needPython is a Python with PyTorch. It skips a test, and says so, where none is found. Where CI is set, as in continuous integration, or
// WEIR_NEED_TORCH, the test fails instead.
func needPython(t testing.TB) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return python
		}
	}
	if os.Getenv("CI")+os.Getenv("WEIR_NEED_TORCH") != "" {
		t.Fatal("no python3 with PyTorch: install it (Debian: apt install python3-torch)")
	}
	t.Skip("SKIPPED: no python3 with PyTorch: the engine torch is not tested (Debian: apt install python3-torch)")
	return ""
}

// anyPython2 is the interpreter for tests that need PyTorch 2: the one with the published packages where PyTorch is among them, else the given one.
func anyPython2(other string) string {
	if python := os.Getenv(realpython.Variable); python != "" && exec.Command(python, "-c", "import torch").Run() == nil {
		return python
	}
	return other
}

// needSharding is a Python whose PyTorch has fully_shard. It skips a test, and says so, where there is none: Debian's PyTorch is older.
func needSharding(t testing.TB) string {
	t.Helper()
	python := anyPython2(needPython(t))
	out, err := exec.Command(python, "-c", "from torch.distributed.fsdp import FSDPModule; FSDPModule.set_force_sum_reduction_for_comms").CombinedOutput()
	if err == nil {
		return python
	}
	if python == os.Getenv(realpython.Variable) {
		t.Fatalf("%s=%s has no fully_shard that adds up on the processor: %s", realpython.Variable, python, out)
	}
	t.Skipf("SKIPPED: the PyTorch of %s has no fully_shard that adds up on the processor: sharding is not tested; %s names a Python with PyTorch 2.9 or newer (make python-torch)",
		python, realpython.Variable)
	return ""
}

// needTime skips a test in a short run: each starts several processes that import PyTorch.
func needTime(t testing.TB) {
	t.Helper()
	fulltest.Need(t, "it takes processes: a killed rank is tested in TestAKilledRankEndsTheGroup")
}
