package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func light(c *Checkpoint) *Checkpoint {
	c.State.Light = true
	return c
}

// saveBoth saves steps with batches, full or light, and returns the store.
func saveBoth(t *testing.T, cfg Config, full ...bool) *Store {
	t.Helper()
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	for step, isFull := range full {
		c := sample(int64(step))
		c.State.Light = !isFull
		if step > 0 {
			c.Batch = pendingMessages()[:1]
		}
		require.NoError(t, s.Save(t.Context(), c))
	}
	return s
}

// reload closes a store and loads it again.
func reload(t *testing.T, s *Store) (*Checkpoint, []*Damage, error) {
	t.Helper()
	require.NoError(t, s.Close())
	again, err := Open(s.cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	return again.Load()
}

func stepsOf(records []*Record) (steps []int64) {
	for _, r := range records {
		steps = append(steps, r.Step)
	}
	return steps
}

func TestALightCheckpointRestsOnTheNewestFullOne(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1}
	s := saveBoth(t, cfg, true, false, false, true, false, false, false)
	steps, err := Steps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{6, 5, 3, 0}, steps, "the newest two, and the newest two full ones")
	fulls, err := FullSteps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 0}, fulls)
	c, damage, err := reload(t, s)
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 6, c.State.Step)
	require.EqualValues(t, 3, c.Full.State.Step)
	require.Equal(t, []int64{4, 5, 6}, stepsOf(c.Since))
	for _, r := range c.Since {
		kept, err := ReadBatch(cfg.Dir, r)
		require.NoError(t, err, "a batch that a start needs is kept although Batches is 0")
		require.Len(t, kept, 1)
	}
	entries, err := os.ReadDir(s.Path(6))
	require.NoError(t, err)
	for _, e := range entries {
		require.NotEqual(t, ".safetensors", filepath.Ext(e.Name()))
	}
}

// Batches older than the full checkpoint below the newest light one are removed by the bounds; later batches stay beyond the bounds.
func TestBatchesThatAStartNeedsAreOutsideTheBounds(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 1, Messages: 1, Batches: 2, BatchBytes: 1}
	saveBoth(t, cfg, true, false, false, false, false, false)
	kept, err := KeptSteps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4, 5}, kept)
	cfg.Dir = t.TempDir()
	saveBoth(t, cfg, true, false, false, true, false, false)
	kept, err = KeptSteps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 5}, kept)
}

// A batch that a start learns again is missed, though the bounds may have removed older ones: the store was called whole, and no trainer could
// start on it.
func TestABatchThatAStartNeedsIsMissed(t *testing.T) {
	t.Parallel()
	for gone, missed := range map[int64]bool{1: false, 3: false, 4: true, 6: true} {
		cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1, Batches: -1}
		saveBoth(t, cfg, true, false, false, true, false, false, false)
		for step := int64(1); step <= gone; step++ {
			require.NoError(t, os.Remove(BatchPath(cfg.Dir, step)))
		}
		found, err := Verify(cfg.Dir, nil)
		require.NoError(t, err)
		require.Equal(t, missed, len(found.Damage) > 0, "%d: %v", gone, found.Damage)
		if missed {
			require.ErrorContains(t, found.Damage[0], "step_000004.zst: want SHA-256 ")
			require.ErrorContains(t, found.Damage[0], "which a start from the newest checkpoint needs, have no such file")
		}
	}
}

func TestDamageBelowALightCheckpointIsNamed(t *testing.T) {
	t.Parallel()
	cut := func(path ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(append([]string{dir}, path...)...), 9))
		}
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		// from is the full checkpoint that the newest is learnt from; -1 where none serves. files are those that the damage names.
		at, from int64
		files    []string
	}{
		"the full checkpoint":    {cut("step_000003", "model.safetensors"), 6, 0, []string{"model.safetensors"}},
		"the newest itself":      {cut("step_000006", stateFile), 5, 3, []string{stateFile}},
		"a batch":                {cut("batches", "step_000006.zst"), 5, 3, []string{"step_000006.zst"}},
		"an older batch":         {cut("batches", "step_000004.zst"), 3, -1, []string{"step_000004.zst"}},
		"the record of steps":    {cut(RecordFile), -1, -1, nil},
		"a batch before, unused": {cut("batches", "step_000002.zst"), 6, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1, Batches: -1}
			s := saveBoth(t, cfg, true, false, false, true, false, false, false)
			c.spoil(t, cfg.Dir)
			got, damage, err := reload(t, s)
			if c.at < 0 {
				require.ErrorIs(t, err, ErrRecord)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.at, got.State.Step)
			if c.from < 0 {
				require.Nil(t, got.Full, "it is a full one")
			} else {
				require.Equal(t, c.from, got.Full.State.Step)
			}
			found := map[string]bool{}
			for _, d := range append(damage, got.PassedOver...) {
				found[d.File] = true
			}
			for _, file := range c.files {
				require.True(t, found[file], "%v", found)
			}
			require.Equal(t, len(c.files) > 0, len(found) > 0)
		})
	}
}

func TestALightCheckpointIsRenewedAndCompleted(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1}
	s := saveBoth(t, cfg, true, true, false)
	require.NoError(t, s.Renew(t.Context(), light(sample(2))))
	fulls, err := FullSteps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0}, fulls)
	c := sample(2)
	c.Record.Batch = nil
	require.NoError(t, s.Complete(t.Context(), c))
	require.NotEmpty(t, c.Record.Result.Files)
	was, err := os.Stat(filepath.Join(s.Path(2), gpu.WeightsFile))
	require.NoError(t, err)

	// Renewed once more, its tensors are the same files.
	again := sample(2)
	again.Record.Result, again.State.Ledger.Low = c.Record.Result, 77
	require.NoError(t, s.Renew(t.Context(), again))
	is, err := os.Stat(filepath.Join(s.Path(2), gpu.WeightsFile))
	require.NoError(t, err)
	require.True(t, os.SameFile(was, is))
	got, damage, err := reload(t, s)
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 77, got.State.Ledger.Low)
	require.EqualValues(t, 8, got.State.OptimizerSteps)
	require.False(t, got.State.Light)
	equal(t, read(t, got.Dir, 8), sample(2).Policy.(*network))
}

// A fork of a light checkpoint has the full one below it, and a store with light ones is whole.
func TestALightCheckpointIsForkedAndVerified(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1}
	s := saveBoth(t, cfg, true, false, true, false, false)
	v, err := Verify(cfg.Dir, nil)
	require.NoError(t, err)
	require.Empty(t, v.Damage)
	require.Equal(t, 4, v.Checkpoints)
	require.NoError(t, s.Close())
	to := filepath.Join(t.TempDir(), "fork")
	_, err = Fork(cfg.Dir, to, "other", 4)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(cfg.Dir))
	s.cfg.Dir = to
	again, err := Open(s.cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	c, damage, err := again.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.Equal(t, "other", c.State.Run)
	require.EqualValues(t, 2, c.Full.State.Step)
	require.Equal(t, []int64{3, 4}, stepsOf(c.Since))
}

// A light checkpoint with files of a model is damaged, and so is a full checkpoint without such files.
func TestAStateThatLiesAboutItsTensorsIsDamage(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1}
	s := saveBoth(t, cfg, true, true)
	var state State
	require.NoError(t, readJSON(filepath.Join(s.Path(1), stateFile), &state))
	state.Light = true
	data, err := json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Path(1), stateFile), data, 0o644))
	require.NoError(t, os.Remove(filepath.Join(s.Path(1), manifestFile)))
	require.NoError(t, sealFolder(s.Path(1), 1))
	got, damage, err := reload(t, s)
	require.NoError(t, err)
	require.EqualValues(t, 0, got.State.Step)
	require.Len(t, damage, 1)
	require.Equal(t, gpu.ConfigFile, damage[0].File)
}
