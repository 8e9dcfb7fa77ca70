package checkpoint

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The steps of the kept batches can be learnt again from a full checkpoint: all of them without a bound, and with a bound those of its newer
// half at least.
func TestTheStepsOfKeptBatchesCanBeReplayed(t *testing.T) {
	t.Parallel()
	const steps = 24
	for name, c := range map[string]struct {
		keep, share int
		bounded     bool
	}{
		"each is full": {1, 1, false}, "each third is full": {2, 3, false}, "each is full, a bound": {1, 1, true}, "each third is full, a bound": {2, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Dir: t.TempDir(), Keep: c.keep, Messages: 1, Batches: -1}
			s := saveBoth(t, cfg, true)
			full, err := folderSize(s.Path(0))
			require.NoError(t, err)
			batch := full // a batch of the tests is smaller than their checkpoint: padded, so that the bound has room for eight
			if c.bounded {
				s.cfg.BatchBytes = 8 * batch
			}
			for step := int64(1); step <= steps; step++ {
				next := sample(step)
				next.State.Light = step%int64(c.share) != 0
				next.Batch = pendingMessages()[:1]
				require.NoError(t, s.Save(t.Context(), next))
				for i := range s.kept {
					s.kept[i].size = batch
				}
			}
			fulls, err := FullSteps(cfg.Dir)
			require.NoError(t, err)
			oldest := slices.Min(fulls)
			require.LessOrEqual(t, len(fulls), c.keep+3)
			if !c.bounded {
				require.Zero(t, oldest, "each step can be replayed")
				return
			}
			first := s.kept[0].step
			require.Positive(t, first-1, "batches went")
			require.GreaterOrEqual(t, oldest, first-1, "a full checkpoint whose batches are gone is of no use")
			require.Less(t, oldest, first+4+int64(c.share))
		})
	}
}

// A checkpoint that is larger than all batches may be is not kept for them.
func TestALargeCheckpointIsNotKeptForReplays(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Keep: 1, Messages: 1, Batches: -1, BatchBytes: 3000}
	s := saveBoth(t, cfg, true, true, true, true)
	full, err := folderSize(s.Path(3))
	require.NoError(t, err)
	require.Less(t, cfg.BatchBytes, full)
	fulls, err := FullSteps(cfg.Dir)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, fulls)
}
