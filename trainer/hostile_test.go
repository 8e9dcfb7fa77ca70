package trainer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// Defect P3: one well-formed trajectory stopped the trainer, and each start after it.
func TestOneWellFormedTrajectoryDoesNotStopTheTrainer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*schemas.Trajectory){
		"rewards that overflow together": func(t *schemas.Trajectory) {
			t.Reward = math.MaxFloat64
			t.Turns = []schemas.Turn{{Start: 2, End: 3, ProcessReward: math.MaxFloat64}}
		},
		"a reward that overflows a group's deviation": func(t *schemas.Trajectory) { t.Reward = 1.7e308 },
		"a temperature that no engine takes":          func(t *schemas.Trajectory) { t.Segments[0].Temperature = 2e30 },
		"a temperature whose inverse is infinite":     func(t *schemas.Trajectory) { t.Segments[0].Temperature = 1e-42 },
		"another task": func(t *schemas.Trajectory) { t.Task = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			w := newWorld(vocab)
			w.change = func(sequence uint64, tr *schemas.Trajectory) {
				if sequence == 1 || sequence == 6 || sequence == 20 {
					change(tr)
					require.NoError(t, tr.Validate())
				}
			}
			train(t, cfg, w)
			refused := 0
			for _, r := range audit(t, cfg, w) {
				for _, x := range r.Rejected {
					if x.Reason == batch.ReasonPoisoned || x.Reason == batch.ReasonForeign {
						require.Contains(t, []uint64{1, 6, 20}, x.Sequence)
						refused++
					}
				}
			}
			require.Equal(t, 3, refused)
		})
	}
}
