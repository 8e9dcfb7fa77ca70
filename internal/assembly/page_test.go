package assembly

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Finding 3 of the ninth reader: a page of a broker's run that was opened before the run's folder was there said "no step is done yet" for
// as long as it was open.
func TestAPageThatIsOpenedBeforeItsRunBeginsShowsIt(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	doors := builtin.Doors()
	cfg, _, err := Resolve(doors, config.Sources{Flags: map[string]string{"run.name": "late", "run.dir": runs, "broker.url": "nats://127.0.0.1:1"}})
	require.NoError(t, err)
	s := &Run{Options: Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler)}, Config: cfg}
	shown, err := s.Viewer().Runs(nil)
	require.NoError(t, err)
	require.Len(t, shown, 1)
	page := runfolder.Open(shown[0].Run)
	defer page.Close()
	require.NoError(t, page.Refresh())
	dir := filepath.Join(runs, "late")
	require.NoError(t, os.Mkdir(dir, 0o755))
	line := `{"at":"2026-01-02T03:04:05Z","type":"step_done","step":7,"policy_version":7,"metrics":{"reward/mean":0.5}}` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, runfolder.MetricsFile), []byte(line), 0o600))
	require.NoError(t, page.Refresh())
	newest := page.Metrics.Newest(schemas.EventStepDone, 1)
	require.Len(t, newest, 1)
	require.EqualValues(t, 7, newest[0].Step)
}

// A page that reads the folder of a run, whose configuration leaves the places of its files to the run's folder, looked for the messages of
// the run's archive below the folder in which it was started.
func TestAPageFindsTheMessagesBelowTheFolderOfTheRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Mkdir(dir, 0o755))
	text := "run: {name: moved, dir: elsewhere}\ntrainer: {archive: {messages: {bytes: 100000000}}}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(text), 0o600))
	doors := builtin.Doors()
	cfg, _, err := Resolve(doors, config.Sources{})
	require.NoError(t, err)
	s := &Run{Options: Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler)}, Config: cfg}
	checkpoints := filepath.Join(dir, runfolder.CheckpointsFolder)
	found := s.Viewer().runFolder(dir)
	require.Equal(t, checkpoints, found.Checkpoints)
	require.Equal(t, messages.Folder{Dir: filepath.Join(checkpoints, "archive", "messages")}, found.Messages)
}
