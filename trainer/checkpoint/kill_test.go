//go:build unix

package checkpoint

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// killedIn names, in a process that is to die, the folder that it saves to.
const killedIn = "WEIR_TEST_KILLED_IN"

// killedWithin names what it saves.
const killedWithin = "WEIR_TEST_KILLED_WITHIN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedIn); dir != "" {
		dieWithinSave(dir)
	}
	os.Exit(m.Run())
}

// dieWithinSave saves again and again, and kills the process once a part of a model is on the disk.
func dieWithinSave(dir string) {
	c := sample(0)
	policy := c.Policy.(*network)
	policy.tensors[0].Data = make([]float32, 1<<22)
	policy.tensors[0].Shape = []int{1 << 20, 4}
	policy.config.VocabSize = 1 << 20
	s, err := Open(Config{Dir: dir, Keep: 1})
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			if part, err := filepath.Glob(filepath.Join(dir, ".*", "model.safetensors")); err == nil && len(part) > 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}()
	for err == nil {
		if os.Getenv(killedWithin) == "reference" {
			err = s.Reference(context.Background(), 0, policy, nil, new(network))
		} else {
			err = s.Save(context.Background(), c)
		}
	}
	panic(err)
}

// Defect P13: a kill while the model was written left it behind for ever.
func TestWhatAKillWithinSaveLeavesIsSweptAtTheNextStart(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, what := range []string{"checkpoint", "reference"} {
		dir := t.TempDir()
		left := func() (names []string) {
			require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				if rel, _ := filepath.Rel(dir, path); strings.HasPrefix(rel, ".") && strings.HasSuffix(rel, "model.safetensors") {
					names = append(names, path)
				}
				return err
			}))
			return names
		}
		for len(left()) == 0 { // a kill that came too late left nothing
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
			cmd.Env = append(os.Environ(), killedIn+"="+dir, killedWithin+"="+what)
			var died *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &died)
			require.Equal(t, -1, died.ExitCode(), "killed by a signal")
		}
		open(t, dir)
		require.Empty(t, left())
	}
}
