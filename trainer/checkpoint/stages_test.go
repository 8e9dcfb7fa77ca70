package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// carrying is a checkpoint with messages that wait for their groups, of a ledger that stands at low.
func carrying(step int64, low uint64) *Checkpoint {
	c := sample(step)
	c.State.Ledger.Low, c.State.Ledger.Above, c.State.Ledger.Carried = low, nil, []uint64{7, 1 << 40}
	c.Pending, c.Batch = pendingMessages(), pendingMessages()[:1]
	return c
}

// Defect P20: what a crash leaves was made by hand. A copy of the folder at each stage of a save, and of one written anew, is
// what a killed process leaves: it holds the checkpoint saved before up to the rename, then the one just saved.
func TestACopyTakenAtEachStageOfASaveIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		save     func(*Store) error
		old, now uint64 // the marks before and after
		stages   []string
	}{
		{"save", func(s *Store) error { return s.Save(t.Context(), carrying(3, 44)) }, 33, 44, []string{"model", "critic", "state", "seal", "rename", "record", "prune"}},
		{"a light save", func(s *Store) error { return s.Save(t.Context(), light(carrying(3, 44))) }, 33, 44, []string{"state", "seal", "rename", "record", "prune"}},
		{"renew", func(s *Store) error { return s.Renew(t.Context(), carrying(2, 44)) }, 33, 44, []string{"state", "seal", "rename"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, filepath.Join(dir, "live"))
			for step, low := range []uint64{11, 22, 33} {
				require.NoError(t, s.Save(t.Context(), carrying(int64(step), low)))
			}
			var stages []string
			s.After = func(stage string) {
				stages = append(stages, stage)
				require.NoError(t, os.CopyFS(filepath.Join(dir, stage), os.DirFS(s.Dir())))
			}
			require.NoError(t, c.save(s))
			require.Equal(t, c.stages, stages)
			want := c.old
			for _, stage := range stages {
				if stage == "rename" {
					want = c.now
				}
				goOn(t, filepath.Join(dir, stage), want)
			}
		})
	}
}

// goOn opens what a crash has left, whose newest checkpoint stands at low, and saves twice more.
func goOn(t *testing.T, dir string, low uint64) {
	t.Helper()
	s := open(t, dir)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), tmpSuffix), e.Name())
	}
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.Equal(t, low, c.State.Ledger.Low)
	want, err := encodePending(pendingMessages())
	require.NoError(t, err)
	have, err := encodePending(c.Pending)
	require.NoError(t, err)
	require.Equal(t, want, have)
	for step := c.State.Step + 1; step <= c.State.Step+2; step++ {
		require.NoError(t, s.Save(t.Context(), carrying(step, 50)))
	}
	records, err := ReadRecords(dir)
	require.NoError(t, err)
	require.Len(t, records, int(c.State.Step)+3)
	steps, err := Steps(dir)
	require.NoError(t, err)
	require.Equal(t, []int64{c.State.Step + 2, c.State.Step + 1}, steps)
	require.EqualValues(t, 50, s.SafePurge("S", time.Unix(100, 5), 0))
}

func TestAnOldFolderBesideItsReplacementIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	require.NoError(t, os.CopyFS(filepath.Join(dir, ".old-step_000003"), os.DirFS(s.Path(2))))
	require.NoError(t, s.Close())
	s = open(t, dir)
	_, err := os.Stat(filepath.Join(dir, ".old-step_000003"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 3, c.State.Step)
}

// A checkpoint that nothing goes back to holds no message in the stream.
func TestADamagedCheckpointHoldsNothingInTheStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	require.NoError(t, os.Truncate(filepath.Join(s.Path(2), stateFile), 9))
	require.NoError(t, s.Close())
	s = open(t, dir)
	_, _, err := s.Load()
	require.NoError(t, err)
	require.EqualValues(t, 30, s.SafePurge("S", time.Unix(100, 5), 0))
	require.Zero(t, s.SafePurge("T", time.Unix(100, 5), 0))
	require.Zero(t, s.SafePurge("S", time.Unix(100, 5), 1))
	require.Zero(t, open(t, t.TempDir()).SafePurge("S", time.Unix(100, 5), 0), "nothing is known")
}

// The newer checkpoints are damaged but for their states: nothing goes back to them, and they must not let go of what the
// checkpoint that was loaded still needs.
func TestTheCheckpointThatWasLoadedHoldsItsMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := Config{Dir: dir, Keep: 1, Every: 1, Messages: 1}
	s, err := Open(config)
	require.NoError(t, err)
	save(t, s, 1, 2)
	require.NoError(t, os.Truncate(filepath.Join(s.Path(2), gpu.OptimizerFile), 9))
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Len(t, damage, 1)
	require.EqualValues(t, 1, c.State.Step)
	require.EqualValues(t, 10, s.SafePurge("S", time.Unix(100, 5), 0))
	require.NoError(t, s.Close())
}

func TestASweepRemovesAllThatIsHalfWrittenAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	require.NoError(t, os.Rename(s.Path(3), filepath.Join(dir, ".old-step_000003")))
	mine := []string{".gitignore", "tmp-notes", "notes.txt"}
	half := []string{".tmp-step_000004", "..tmp-step_000004.tmp-12", "purged.json.tmp", ".old-step_000002"}
	for _, name := range slices.Concat(mine, half) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	require.NoError(t, s.Close())
	open(t, dir)
	for _, name := range mine {
		require.FileExists(t, filepath.Join(dir, name))
	}
	for _, name := range half {
		_, err := os.Lstat(filepath.Join(dir, name))
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	steps, err := Steps(dir)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 2}, steps, "put back")
}

// What weir asks before a run goes on: the settings of the newest state that can be read.
func TestTheStateOfADamagedCheckpointIsPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state, err := ReadState(dir)
	require.NoError(t, err)
	require.Nil(t, state)
	s := open(t, dir)
	save(t, s, 2, 3)
	for _, c := range []struct {
		damage string
		step   int64
	}{{"", 3}, {`{"step": 2}`, 2}, {`{"step": 3, "run"`, 2}} {
		if c.damage != "" {
			require.NoError(t, os.WriteFile(filepath.Join(s.Path(3), stateFile), []byte(c.damage), 0o644))
		}
		state, err := ReadState(dir)
		require.NoError(t, err)
		require.Equal(t, c.step, state.Step, c.damage)
		require.Equal(t, "r", state.Run)
	}
	require.NoError(t, os.Remove(filepath.Join(s.Path(2), stateFile)))
	state, err = ReadState(dir)
	require.NoError(t, err)
	require.Nil(t, state)
}

func TestACheckpointOfAnotherFormatOrStepIsNamed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*State){
		"format": func(s *State) { s.Format = Format + 1 },
		"step":   func(s *State) { s.Step = 4 },
	} {
		s := open(t, t.TempDir())
		save(t, s, 3)
		var state State
		path := filepath.Join(s.Path(3), stateFile)
		require.NoError(t, readJSON(path, &state))
		change(&state)
		require.NoError(t, writeJSON(path, state))
		require.NoError(t, os.Remove(filepath.Join(s.Path(3), manifestFile)))
		require.NoError(t, sealFolder(s.Path(3), 3))
		_, err := Read(s.Path(3), 3)
		damage := &Damage{}
		require.ErrorAs(t, err, &damage, name)
		want := fmt.Sprintf("format %d, step 3", Format)
		require.Equal(t, want, damage.Want)
	}
}

func TestAPurgeThatIsForgottenRefusesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	require.NoError(t, s.ForgetPurged(), "nothing was purged")
	save(t, s, 2, 3)
	require.NoError(t, s.MarkPurged("S", time.Unix(100, 5), 77))
	_, _, err := s.Load()
	require.ErrorIs(t, err, ErrNotResumable)
	require.NoError(t, s.ForgetPurged())
	_, _, err = s.Load()
	require.NoError(t, err)
}

func TestASinglePendingMessageIsInTheCheckpoint(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		s := open(t, t.TempDir())
		c := sample(1)
		for i := range n {
			seq := uint64(3 + i)
			c.State.Ledger.Carried = append(c.State.Ledger.Carried, seq)
			c.Pending = append(c.Pending, schemas.Delivery{Sequence: seq, Closed: &schemas.GroupClosed{Run: "r", Group: "g"}})
		}
		require.NoError(t, s.Save(t.Context(), c))
		loaded, damage, err := s.Load()
		require.NoError(t, err)
		require.Empty(t, damage)
		require.Len(t, loaded.Pending, n)
	}
}

func TestWhatIsNotKeptOfABatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		batches int
		batch   bool
		kept    bool
	}{{0, true, false}, {-1, false, false}, {-1, true, true}, {1, true, true}} {
		dir := t.TempDir()
		s, err := Open(Config{Dir: dir, Keep: 1, Batches: c.batches})
		require.NoError(t, err)
		now := carrying(1, 5)
		if !c.batch {
			now.Batch = nil
		}
		require.NoError(t, s.Save(t.Context(), now))
		_, err = ReadBatch(dir, &now.Record)
		require.Equal(t, !c.kept, errors.Is(err, ErrNoBatch))
		require.Equal(t, c.kept, now.Record.Batch != nil)
		require.NoError(t, s.Close())
	}
}

func TestTheBoundsOfTheSettingsAreTheirs(t *testing.T) {
	t.Parallel()
	least := Config{Dir: "x", Keep: 1, Every: 0, Messages: 1, Batches: -1, BatchBytes: 0}
	require.NoError(t, least.Validate())
	for key, change := range map[string]func(*Config){
		"dir":         func(c *Config) { c.Dir = "" },
		"keep":        func(c *Config) { c.Keep-- },
		"every":       func(c *Config) { c.Every-- },
		"messages":    func(c *Config) { c.Messages-- },
		"batches":     func(c *Config) { c.Batches-- },
		"batch_bytes": func(c *Config) { c.BatchBytes-- },
	} {
		c := least
		change(&c)
		require.ErrorContains(t, c.Validate(), key+": ")
	}
}
