package servers_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// stages stages a version twice under its label, from other files the second time, without PyTorch and a server.
const stages = `import sys, types
torch = types.ModuleType("torch")
torch.float64 = torch.float32 = torch.float16 = torch.bfloat16 = None
sys.modules["torch"], sys.dont_write_bytecode = torch, True
import weir_stage
class Staged(weir_stage.Staged):
    def run(self):
        self.tensors = [self.folder, *self.files]
weir_stage.Staged, weir_stage.read_shapes = Staged, lambda folder: {}
stages = weir_stage.Stages()
for folder, inode in ("v5", 1), ("v5-2", 1), ("v5-2", 2):
    while stages.stage("tag-v5", folder, [["f", 1, inode, 1]], "m", None)["state"] != "staged":
        pass
print(stages.take("tag-v5").tensors)
`

// Finding 12b.5: a version that was staged, and whose end Weir had not seen, was loaded in place of another with its number.
func TestAnotherVersionOfTheSameNumberIsStagedAnew(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: the plugins' part was not run")
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", stages).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "['v5-2', ['f', 1, 2, 1]]\n", string(out))
}
