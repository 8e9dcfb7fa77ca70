package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/records"
	"github.com/weir-rl/weir/internal/report"
)

// A run that keeps TensorBoard's event file has in it, at its end, what weir records writes of its metrics; one that cannot write it
// trains to its end and says so.
func TestARunKeepsItsEventFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{
		"up", "--run.dir", dir, "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1", "--trainer.batch_groups", "1", "--trainer.minibatches", "1",
		"--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", "1", "--eval.every", "0", "--eval.test_questions", "1",
		"--view.listen", "", "--records.tensorboard",
	}
	weir(t, args...)
	kept, err := os.ReadFile(filepath.Join(dir, "demo", "tensorboard", "events.out.tfevents.demo"))
	require.NoError(t, err)
	all, err := report.ReadMetrics(filepath.Join(dir, "demo", assembly.MetricsFile))
	require.NoError(t, err)
	require.Equal(t, report.Tested, all[len(all)-1].Type)
	var want bytes.Buffer
	w, err := records.NewEventWriter(&want, all[0].At)
	require.NoError(t, err)
	head := want.Len()
	for _, rec := range all {
		require.NoError(t, w.Add(rec))
	}
	require.Equal(t, want.Bytes()[head:], kept[head:])

	full := filepath.Join(dir, "full", "tensorboard")
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, nil, 0o644)) // no folder can be made there
	weir(t, append(args, "--run.name", "full")...)
	log, err := os.ReadFile(filepath.Join(dir, "full", "weir.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "event file is not written any more, and the run goes on")
}
