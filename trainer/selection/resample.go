package selection

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// BestOf are the indices of the n largest rewards, best first; of equal ones those that come first. A penalty, when
// given, breaks ties: the smaller is the better.
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

// OnCorrect takes n of an oversampled group's trajectories (GRPO-RoC, rStar2-Agent, arXiv 2508.20722, section 3.2).
// Right and wrong ones keep their proportion. The wrong ones are drawn evenly, so that every way to fail stays seen;
// of the right ones, those with fewer tool errors and a better format are drawn more often, each with a chance in
// inverse proportion to its penalty.
type OnCorrect struct {
	// Right is the least reward of a right trajectory. Defaults to 1.
	Right float64 `koanf:"right"`
	// Flawless is what a trajectory without penalty counts as. Defaults to 0.1.
	Flawless float64 `koanf:"flawless"`
}

// DefaultOnCorrect counts rewards from 1 as right.
func DefaultOnCorrect() OnCorrect { return OnCorrect{Right: 1, Flawless: 0.1} }

// ErrGroupTooSmall is returned when more trajectories are asked for than there are.
var ErrGroupTooSmall = errors.New("group has fewer trajectories than are to be taken")

// Take are the indices of the n that are trained on, ascending. penalties have one entry a trajectory, 0 or more: the
// share of its tool calls that failed, plus what its format lacks.
func (o OnCorrect) Take(n int, rewards, penalties []float64, random *rand.Rand) ([]int, error) {
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
	fromWrong = min(max(fromWrong, n-len(right)), len(wrong))
	taken := draw(wrong, fromWrong, func(int) float64 { return 1 }, random)
	taken = append(taken, draw(right, n-fromWrong, func(i int) float64 {
		return 1 / max(penalties[i], o.Flawless)
	}, random)...)
	slices.Sort(taken)
	return taken, nil
}

// draw takes n of the indices without replacement, each with a chance in proportion to its weight.
func draw(from []int, n int, weight func(i int) float64, random *rand.Rand) []int {
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
