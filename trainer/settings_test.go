package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Newcomer's friction 3: an algorithm that changed in the middle of a run left no trace.
func TestTheRecordSaysWithWhatEachStepWasTrained(t *testing.T) {
	t.Parallel()
	for _, killed := range []struct {
		at      string
		version int64
		nth     int
	}{{"nowhere", 0, 0}, {"after next", 2, 9}, {"before publish", 2, 2}, {"after publish", 3, 1}} {
		t.Run("killed "+killed.at, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.Checkpoint.Messages = 5 // checkpoints are written anew within steps, too
			w := newWorld(vocab)
			w.flat = 3
			var told []schemas.Event
			run := func(steps int64, settings map[string]string) error {
				cfg.Steps = steps
				return Run(t.Context(), cfg, Deps{
					Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Settings: settings,
					Observer: func(e schemas.Event) {
						if e.Type == EventSettings {
							told = append(told, e)
						}
					},
				})
			}
			first := map[string]string{"loss": "ppo", "eta": "0"}
			second := map[string]string{"loss": "cispo", "eta": "0", "new": "key"}
			require.NoError(t, run(2, first))
			require.NoError(t, run(2, second), "no step uses them")
			state, err := checkpoint.ReadState(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, first, state.Settings)
			crashes := 0
			w.crash = func(at string) error {
				if at == killed.at && w.latest == killed.version {
					if crashes++; crashes == killed.nth {
						return errCrash
					}
				}
				return nil
			}
			told = nil
			for err = run(4, second); err != nil; err = run(4, second) {
				require.ErrorIs(t, err, errCrash)
			}
			require.GreaterOrEqual(t, crashes, killed.nth, "it was killed")
			require.NotEmpty(t, told)
			require.Equal(t, "loss: cispo, before ppo", told[0].Message)
			require.NoError(t, told[0].Validate())

			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			var names []string
			var changed [][]checkpoint.RecordChange
			for _, r := range records {
				names, changed = append(names, r.Settings), append(changed, r.Changed)
			}
			one, two := settingsHash(first), settingsHash(second)
			require.NotEqual(t, one, two)
			require.Equal(t, []string{one, one, one, two, two}, names)
			require.Equal(t, [][]checkpoint.RecordChange{nil, nil, nil, {{Key: "loss", Before: "ppo", After: "cispo"}}, nil}, changed)
			state, err = checkpoint.ReadState(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, second, state.Settings)
		})
	}
}

// A key of the section trainer.advantage that every estimator has is compared also where the estimator was replaced; an estimator's own
// key is not.
func TestChangesOfAnotherEstimator(t *testing.T) {
	t.Parallel()
	before := map[string]string{"trainer.advantage.name": "grpo", "trainer.advantage.single": "zero"}
	now := map[string]string{"trainer.advantage.name": "gae", "trainer.advantage.single": "reward"}
	want := []string{"trainer.advantage.name"}
	for _, key := range []string{"bootstrap", "normalize.mean", "normalize_process", "tokens"} {
		before["trainer.advantage."+key], now["trainer.advantage."+key] = "a", "b"
		want = append(want, "trainer.advantage."+key)
	}
	var changed []string
	for _, c := range Changes(before, now) {
		changed = append(changed, c.Key)
	}
	require.ElementsMatch(t, want, changed)
}
