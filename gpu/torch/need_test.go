package torch_test

import (
	"cmp"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// torch2 names the variable with the interpreter for tests that need PyTorch 2; without it they take the one that the others take.
const torch2 = "WEIR_TEST_TORCH2_PYTHON"

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

// anyPython2 is the interpreter for tests that need PyTorch 2, or the given one.
func anyPython2(other string) string { return cmp.Or(os.Getenv(torch2), other) }

// needSharding is a Python whose PyTorch has fully_shard. It skips a test, and says so, where there is none: Debian's PyTorch is older.
func needSharding(t testing.TB) string {
	t.Helper()
	python := anyPython2(needPython(t))
	out, err := exec.Command(python, "-c", "from torch.distributed.fsdp import FSDPModule; FSDPModule.set_force_sum_reduction_for_comms").CombinedOutput()
	if err == nil {
		return python
	}
	if os.Getenv(torch2) != "" {
		t.Fatalf("%s=%s has no fully_shard that adds up on the processor: %s", torch2, python, out)
	}
	t.Skipf("SKIPPED: the PyTorch of %s has no fully_shard that adds up on the processor: sharding is not tested; %s names a Python with PyTorch 2.9 or newer", python, torch2)
	return ""
}

// needTime skips a test in a short run: each starts several processes that import PyTorch.
func needTime(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes processes: a killed rank is tested in TestAKilledRankEndsTheGroup")
	}
}
