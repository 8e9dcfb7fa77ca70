package selection

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Groups decides which groups are worth training on.
type Groups struct {
	// DropZeroVariance drops groups whose rewards are all equal, which have no advantage (DAPO's dynamic sampling, arXiv 2503.14476,
	// equation 11). Others take their places.
	DropZeroVariance bool `koanf:"drop_zero_variance" default:"true"`
	// DropRate is the share of such groups that is dropped, at random: L0 keeps half.
	DropRate float64 `koanf:"drop_rate" default:"1" min:"0" max:"1"`
	// Tolerance is how far apart rewards may be and still count as equal.
	Tolerance float64 `koanf:"tolerance" min:"0"`
	// ExtremesOnly drops a group only if its rewards all equal Worst or all equal Best (L0: no sample right, or every sample).
	ExtremesOnly bool    `koanf:"extremes_only"`
	Worst        float64 `koanf:"worst"`
	Best         float64 `koanf:"best" default:"1"`
	// KeepSingle keeps groups of one trajectory, which have no variance (DAPO's recipe).
	KeepSingle bool `koanf:"keep_single" default:"true"`
	// MaxMean drops groups whose mean reward is at least this: prompts already solved (no-positive-resampling,
	// ScaleRL). 0, the default, drops none.
	MaxMean float64 `koanf:"max_mean"`
}

// DefaultGroups drop every group of equal rewards.
func DefaultGroups() Groups {
	return check.Default[Groups]()
}

// Validate reports every fault.
func (g Groups) Validate() error {
	return check.All(
		check.Fields(g),
		check.That(!g.ExtremesOnly || g.Worst != g.Best, "best", "%v: must differ from worst", g.Best),
	)
}

// DropsSingles reports whether every group of one trajectory is dropped: its rewards are all equal.
func (g Groups) DropsSingles() bool {
	return g.DropZeroVariance && !g.KeepSingle && g.DropRate == 1 && !g.ExtremesOnly
}

// Keep reports whether a group with these rewards is trained on. u is a random number in [0, 1).
func (g Groups) Keep(rewards []float64, u float64) (bool, error) {
	if len(rewards) == 0 {
		return false, stats.Fault("Rewards", -1, "empty group")
	}
	if err := stats.CheckRowsFinite("Rewards", rewards); err != nil {
		return false, err
	}
	mean, _ := stats.MeanStd(rewards)
	if g.MaxMean != 0 && mean >= g.MaxMean {
		return false, nil
	}
	if !g.DropZeroVariance || g.KeepSingle && len(rewards) == 1 || !g.isUniform(rewards) {
		return true, nil
	}
	return u > g.DropRate, nil
}

// isUniform reports whether the rewards are all the same, and an extreme if only extremes count.
func (g Groups) isUniform(rewards []float64) bool {
	least, most := rewards[0], rewards[0]
	for _, r := range rewards {
		least, most = min(least, r), max(most, r)
	}
	if most-least > g.Tolerance {
		return false
	}
	return !g.ExtremesOnly || isNear(least, g.Worst, g.Tolerance) || isNear(least, g.Best, g.Tolerance)
}

func isNear(a, b, tolerance float64) bool { return a-b <= tolerance && b-a <= tolerance }

// ErrTooFew is returned when there are still too few rows after the last allowed round of generation.
var ErrTooFew = errors.New("too few samples are left after selection")

// Accumulate gathers the rows of several rounds of generation until there are enough (L0: twice the batch, in rows, within three rounds).
type Accumulate struct {
	// Rows makes a step wait for this number of rows, not for batch_groups groups: contexts with sampled tokens, after selection. An
	// append-only rollout is one row. Whole groups are taken until they have as many rows, or with eta 0 all groups that have come;
	// batch_groups further prompts are issued when every issued group has come and they still have fewer. 0, the default, counts groups.
	Rows int `koanf:"rows" min:"0"`
	// MaxRounds bounds the prompts of a step, in units of batch_groups; beyond it the run ends with an error.
	MaxRounds int `koanf:"max_rounds" default:"3" above:"0"`
}

// DefaultAccumulate counts groups.
func DefaultAccumulate() Accumulate { return check.Default[Accumulate]() }

// Validate reports every fault.
func (a Accumulate) Validate() error {
	return check.Fields(a)
}

// Enough reports whether to stop after this number of rounds, which left this number of rows. The error wraps ErrTooFew when no further
// round is allowed.
func (a Accumulate) Enough(rows, rounds int) (bool, error) {
	if rows >= a.Rows {
		return true, nil
	}
	if rounds >= a.MaxRounds {
		return false, fmt.Errorf("gather %d rows: %d in %d rounds (max_rounds %d): %w", a.Rows, rows, rounds, a.MaxRounds, ErrTooFew)
	}
	return false, nil
}
