package assembly

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A low finding of the eighth reader: weir eval and weir model export failed where the trainer removed the checkpoint that they had begun to
// read. They take another.
func TestAVersionIsOpenedAgainWhereItsCheckpointWasRemoved(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	cfg, _, err := Resolve(builtin.Doors(), config.Sources{Flags: map[string]string{"run.name": "r", "run.dir": runs}})
	require.NoError(t, err)
	makeFull := func(step int64) string {
		dir := checkpoint.StepDir(cfg.Trainer.Checkpoint.Dir, step)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for _, name := range []string{"manifest.json", "config.json", "state.json"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600))
		}
		return dir
	}
	makeFull(4)
	l := &Models{cfg: cfg}
	var used []int64
	use := func(f *VersionFolder) error {
		used = append(used, f.Version)
		if f.Version == 4 { // the trainer has made step 6 and removes step 4
			makeFull(6)
			require.NoError(t, os.RemoveAll(f.Dir))
			return errors.New("read the model: it is gone")
		}
		_, err := os.ReadFile(filepath.Join(f.Dir, "config.json"))
		return err
	}
	require.NoError(t, l.UseVersion(t.Context(), -1, use))
	require.Equal(t, []int64{4, 6}, used)

	broken := errors.New("the model is damaged")
	used = nil
	require.ErrorIs(t, l.UseVersion(t.Context(), 6, func(f *VersionFolder) error {
		used = append(used, f.Version)
		return broken
	}), broken)
	require.Equal(t, []int64{6}, used, "a model that is there and damaged is read once")
	used = nil
	require.ErrorIs(t, l.UseVersion(t.Context(), -1, func(f *VersionFolder) error {
		used = append(used, f.Version)
		return fmt.Errorf("read: %w", os.ErrNotExist)
	}), os.ErrNotExist)
	require.Len(t, used, mostPlans)
}
