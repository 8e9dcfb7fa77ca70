package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding 16b.2: lines that are gone from before an emptied record kept a start from going back to the newest full checkpoint.
func TestAStartGoesBackToAFullCheckpointAfterItsRecordWasEmptied(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1, Batches: -1}
	s := saveBoth(t, cfg, true, false, false, true, false, false, false)
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, RecordFile), nil, 0o600)) // as docs/troubleshooting.md says
	c, _, err := s.Load()
	require.NoError(t, err)
	require.EqualValues(t, 3, c.State.Step)
	for step := int64(4); step <= 7; step++ {
		require.NoError(t, s.Save(t.Context(), light(carrying(step, 1))))
	}
	require.NoError(t, os.Remove(BatchPath(cfg.Dir, 5)))
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Contains(t, []int64{3, 4}, c.State.Step)
	require.NotEmpty(t, damage)
}
