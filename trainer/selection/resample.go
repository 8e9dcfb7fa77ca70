package selection

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// How Resample chooses.
const (
	ResampleOff     = "off"
	ResampleBest    = "best"
	ResampleCorrect = "on_correct"
)

// Resample trains on some of a group's samples: a group is rolled out larger than it is trained on. The others are used up
// by the step.
type Resample struct {
	// By is off; best, the samples of the largest reward, the better format first where rewards are equal (best of n), with advantages
	// taken over the whole group; or on_correct (GRPO-RoC), where the other samples count in no statistic of their group.
	By string `koanf:"by" default:"off" oneof:"off best on_correct"`
	// Take is how many samples of a group are trained on; a group with no more samples trains on all. It must be set unless By is off.
	Take      int `koanf:"take" min:"0"`
	OnCorrect `koanf:",squash"`
}

// DefaultResample is off.
func DefaultResample() Resample { return check.Default[Resample]() }

// Validate reports every fault.
func (r Resample) Validate() error {
	return check.All(
		check.Fields(r),
		check.That(r.By == ResampleOff || r.Take != 0, "take", "%d: must be positive", r.Take),
	)
}

// Choose are the indices of the samples that are trained on, ascending. penalties are as OnCorrect.Choose has them.
func (r Resample) Choose(rewards, penalties []float64, random *rand.Rand) (taken []int, err error) {
	n := min(r.Take, len(rewards))
	switch r.By {
	case ResampleBest:
		taken, err = BestOf(n, rewards, penalties)
	case ResampleCorrect:
		taken, err = r.OnCorrect.Choose(n, rewards, penalties, random)
	default:
		taken, err = BestOf(len(rewards), rewards, nil)
	}
	slices.Sort(taken)
	return taken, err
}

// BestOf are the indices of the n largest rewards, best first; of equal rewards the first. A penalty, when given, breaks ties: the smaller
// is the better.
func BestOf(n int, rewards, penalties []float64) ([]int, error) {
	if err := stats.CheckRowsFinite("Rewards", rewards); err != nil {
		return nil, err
	}
	if penalties != nil && len(penalties) != len(rewards) {
		return nil, stats.Fault("Penalties", -1, "%d entries, want %d", len(penalties), len(rewards))
	}
	order := make([]int, len(rewards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := cmp.Compare(rewards[b], rewards[a]); c != 0 || penalties == nil {
			return c
		}
		return cmp.Compare(penalties[a], penalties[b])
	})
	return order[:min(max(n, 0), len(order))], nil
}

// OnCorrect takes n of an oversampled group's trajectories (GRPO-RoC, rStar2-Agent, arXiv 2508.20722, section 3.2). Right and wrong
// trajectories keep their proportion, but at least 1 of each kind is taken if there is any. Wrong trajectories are drawn evenly, so that
// every kind of failure stays in the data. Right trajectories with fewer tool errors and a better format are drawn more often, each with a
// chance in inverse proportion to its penalty.
type OnCorrect struct {
	// Right is the least outcome reward, before overlong shaping, of a right trajectory.
	Right float64 `koanf:"right" default:"1"`
	// Flawless is the penalty that a trajectory without a penalty counts as, above 0.
	Flawless float64 `koanf:"flawless" default:"0.1" above:"0"`
}

// DefaultOnCorrect counts rewards from 1 as right.
func DefaultOnCorrect() OnCorrect { return OnCorrect{Right: 1, Flawless: 0.1} }

// ErrGroupTooSmall is returned when a group has fewer trajectories than are to be taken.
var ErrGroupTooSmall = errors.New("group has fewer trajectories than are to be taken")

// Choose returns the indices of the n trajectories that are trained on, ascending. penalties have one entry a trajectory, 0 or more: the
// share of its tool calls that failed, plus the faults of its format.
func (o OnCorrect) Choose(n int, rewards, penalties []float64, random *rand.Rand) ([]int, error) {
	if err := stats.CheckRowsFinite("Rewards", rewards); err != nil {
		return nil, err
	}
	if err := stats.CheckLength("Penalties", penalties, len(rewards)); err != nil {
		return nil, err
	}
	for i, p := range penalties {
		if !(p >= 0) || !stats.Finite(p) {
			return nil, stats.Fault("Penalties", i, "is %v, want 0 or more", p)
		}
	}
	if n < 0 || n > len(rewards) {
		return nil, ErrGroupTooSmall
	}
	var right, wrong []int
	for i, r := range rewards {
		if r >= o.Right {
			right = append(right, i)
		} else {
			wrong = append(wrong, i)
		}
	}
	fromWrong := (len(wrong)*n + len(rewards)/2) / max(1, len(rewards))
	if n > 1 && len(right) > 0 && len(wrong) > 0 {
		fromWrong = min(max(fromWrong, 1), n-1)
	}
	fromWrong = min(max(fromWrong, n-len(right)), len(wrong))
	taken := drawWeighted(wrong, fromWrong, func(int) float64 { return 1 }, random)
	taken = append(taken, drawWeighted(right, n-fromWrong, func(i int) float64 {
		return 1 / max(penalties[i], o.Flawless)
	}, random)...)
	slices.Sort(taken)
	return taken, nil
}

// drawWeighted takes n of the indices without replacement, each with a chance in proportion to its weight.
func drawWeighted(from []int, n int, weight func(i int) float64, random *rand.Rand) []int {
	left := slices.Clone(from)
	var taken []int
	for range n {
		total := 0.0
		for _, i := range left {
			total += weight(i)
		}
		at := random.Float64() * total
		k := 0
		for ; k < len(left)-1; k++ {
			if at -= weight(left[k]); at < 0 {
				break
			}
		}
		taken = append(taken, left[k])
		left = slices.Delete(left, k, k+1)
	}
	return taken
}
