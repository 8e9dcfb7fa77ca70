package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Finding 14.2: an audit passed a record whose last lines were gone, beside the checkpoints and batches of their steps.
func TestLinesThatAreGoneFromTheEndOfARecordAreFound(t *testing.T) {
	t.Parallel()
	saved, _ := saveRun(t) // steps 0 to 5, with the checkpoints 0, 4 and 5 and the batches 1 to 5
	whole, err := os.ReadFile(filepath.Join(saved, checkpoint.RecordFile))
	require.NoError(t, err)
	lines := bytes.SplitAfter(whole, []byte("\n"))[:6]
	first := func(n int) []byte { return bytes.Join(lines[:n], nil) }
	remove := func(steps ...int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, step := range steps {
				require.NoError(t, os.RemoveAll(checkpoint.StepDir(dir, step)))
			}
		}
	}
	spoil := func(steps ...int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, step := range steps {
				require.NoError(t, os.Truncate(filepath.Join(checkpoint.StepDir(dir, step), "state.json"), 1))
			}
		}
	}
	for _, c := range []struct {
		name   string
		record []byte
		change func(*testing.T, string)
		starts bool // a trainer starts on what is left, and stops
		damage string
		gaps   int64
	}{
		{"nothing", whole, nil, false, "", 0},
		{"a kill before the last line", first(5), nil, false, "", 0},
		{"a kill within the last line", whole[:len(whole)-9], nil, false, "", 0},
		{"two lines, two checkpoints", first(4), nil, false, "the lines of step 4, after which the checkpoint of step 5", 1},
		{"two lines, one checkpoint", first(4), remove(4), false, "the lines of step 4, after which the checkpoint of step 5", 1},
		{"two lines, the newest checkpoint damaged", first(3), spoil(5), false, "the lines of step 3, after which the checkpoint of step 4", 1},
		{"three lines", first(3), nil, false, "steps 3 to 4, after which the checkpoint of step 5", 2},
		{"three lines and a part", append(first(3), lines[3][:9]...), nil, false, "steps 3 to 4, after which the checkpoint of step 5", 2},
		{"three lines, batches alone", first(3), remove(4, 5), false, "steps 3 to 4, after which the batch of step 5", 2},
		{"three lines, batches and no checkpoint", first(3), remove(0, 4, 5), false, "steps 3 to 4, after which the batch of step 5", 2},
		{"a line within", append(first(2), bytes.Join(lines[3:], nil)...), nil, false, "line 3, step 3, as it was written", 1},
		{"the first line", bytes.Join(lines[1:], nil), nil, false, "bytes that the checkpoint goes on from", 1},
		{"all lines", nil, nil, false, "steps 0 to 4, after which the checkpoint of step 5", 5},
		{"five other lines", bytes.ReplaceAll(first(5), []byte(`"stream":""`), []byte(`"stream":"x"`)), nil, false, "as it was written", 0},
		{"the run goes back by one step", whole, remove(5), true, "", 0},
		{"the run goes back by five steps", whole, remove(4, 5), true, "", 0},
		{"the run passes a damaged checkpoint over", whole, spoil(5), true, "step_000005/state.json", 0},
		{"the run passes two damaged checkpoints over", whole, spoil(4, 5), true, "step_000005/state.json", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			require.NoError(t, os.CopyFS(dir, os.DirFS(saved)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.RecordFile), c.record, 0o600))
			if c.change != nil {
				c.change(t, dir)
			}
			if c.starts {
				s, err := checkpoint.Open(checkpoint.Config{Dir: dir, Keep: 2})
				require.NoError(t, err)
				_, _, err = s.Load()
				require.NoError(t, err)
				require.NoError(t, s.Close())
			}
			found, err := Verify("test", dir, nil)
			require.NoError(t, err)
			var damage []string
			for _, d := range found.Damage {
				damage = append(damage, d.String())
			}
			if c.damage == "" {
				require.Empty(t, damage)
			} else {
				require.Contains(t, strings.Join(damage, "\n"), c.damage)
			}
			if c.starts {
				require.NotContains(t, strings.Join(damage, "\n"), checkpoint.RecordFile)
			}
			r, err := ReadStore(dir, Bounds{Eta: 9}, nil)
			require.NoError(t, err)
			require.Equal(t, c.gaps, r.Gaps.Count, r.Gaps.First)
		})
	}
}

// Finding 14.2: of a record that was removed, and not only emptied, an audit of what it accounts for says the same.
func TestARecordThatWasRemovedIsMissed(t *testing.T) {
	t.Parallel()
	dir, _ := saveRun(t)
	require.NoError(t, os.Remove(filepath.Join(dir, checkpoint.RecordFile)))
	found, err := Verify("test", dir, nil)
	require.NoError(t, err)
	require.Contains(t, found.Damage[0].String(), "want the record of steps, have no such file")
	r, err := ReadStore(dir, Bounds{}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, r.Err(), "steps_missing=5")
	require.Equal(t, []string{"steps 0 to 4: the record ends before, and the checkpoint of step 5 was written after"}, r.Gaps.First)
}
