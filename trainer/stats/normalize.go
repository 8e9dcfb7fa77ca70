package stats

import (
	"math"

	"github.com/weir-rl/weir/internal/check"
)

// The sets over which a Normalization takes its mean or deviation.
const (
	LevelNone  = "none"
	LevelBatch = "batch"
	LevelGroup = "group"
)

// Normalization shifts and scales rewards (an entry for each row) or advantages (an entry for each token), as AReaL does:
//
//	y = (x - mean) / (std + Epsilon), and 0 where the mask is 0
type Normalization struct {
	// Mean and Std are none, batch or group. Without Std the divisor is exactly 1.
	Mean string `koanf:"mean" default:"none" oneof:"none batch group"`
	Std  string `koanf:"std" default:"none" oneof:"none batch group"`
	// LeaveOneOut takes each entry's mean over the others. A group of one trajectory then has mean 0.
	LeaveOneOut bool `koanf:"leave_one_out"`
	// Biased divides the squares by n, not n-1. Unbiased, fewer than two entries or a group of one trajectory have std 1.
	Biased bool `koanf:"biased"`
	// Epsilon is added to the deviation.
	Epsilon float64 `koanf:"epsilon" default:"1e-05" min:"0"`
}

// DefaultNormalization does nothing.
func DefaultNormalization() Normalization { return check.Default[Normalization]() }

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (n Normalization) Unread(key string) string {
	switch {
	case key == "leave_one_out" && n.Mean == LevelNone:
		return "mean is none"
	case (key == "biased" || key == "epsilon") && n.Std == LevelNone:
		return "std is none"
	}
	return ""
}

// Validate reports every fault.
func (n Normalization) Validate() error {
	return check.All(
		check.Fields(n),
	)
}

// levelSet adds up the entries that share a mean or a deviation.
type levelSet struct {
	sum, squares float64
	n            int
	// trajectory is that of a row; several is whether there is a row of another.
	trajectory int
	several    bool
}

// Apply writes y to out, which may be x. Row i is x[offsets[i]:offsets[i+1]], belongs to groups[i] and is a part of trajectories[i]; a
// negative group is no group: its mean and deviation are 0. A nil mask is all ones, nil trajectories are a trajectory for each row. A batch
// that is masked throughout is left as it is.
func (n Normalization) Apply(x []float64, offsets []int, mask []uint8, groups, trajectories []int, out []float64) error {
	if mask == nil {
		mask = make([]uint8, len(x))
		for t := range mask {
			mask[t] = 1
		}
	}
	if err := CheckRows(offsets, mask); err != nil {
		return err
	}
	if err := CheckLength("x", x, len(mask)); err != nil {
		return err
	}
	if n.Mean == LevelGroup || n.Std == LevelGroup {
		if err := CheckLength("Group", groups, len(offsets)-1); err != nil {
			return err
		}
	}
	if trajectories != nil {
		if err := CheckLength("Trajectory", trajectories, len(offsets)-1); err != nil {
			return err
		}
	}
	if err := CheckFinite("x", x, offsets, mask); err != nil {
		return err
	}
	if _, count := Sum(x, mask); count == 0 {
		copy(out, x)
		return nil
	}
	sums := n.levelSums(x, offsets, mask, groups, trajectories)
	for i := range len(offsets) - 1 {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if mask[t] == 0 {
				out[t] = 0
				continue
			}
			out[t] = n.subtractMean(sums, groups, i, x[t]) / n.scaleDivisor(sums, groups, i)
		}
	}
	return nil
}

const wholeBatch = math.MinInt

// levelKey returns the key of row i's set at a level.
func levelKey(level string, groups []int, i int) int {
	if level == LevelGroup {
		return groups[i]
	}
	return wholeBatch
}

// levelSums fills first the means' sums, then the deviations' squares.
func (n Normalization) levelSums(x []float64, offsets []int, mask []uint8, groups, trajectories []int) map[int]*levelSet {
	sums := map[int]*levelSet{}
	at := func(k, i int) *levelSet {
		trajectory := i
		if trajectories != nil {
			trajectory = trajectories[i]
		}
		s := sums[k]
		if s == nil {
			s = &levelSet{trajectory: trajectory}
			sums[k] = s
		}
		s.several = s.several || s.trajectory != trajectory
		return s
	}
	for i := range len(offsets) - 1 {
		sum, count := Sum(x[offsets[i]:offsets[i+1]], mask[offsets[i]:offsets[i+1]])
		for _, k := range []int{wholeBatch, levelKey(LevelGroup, groupsOrNone(groups, len(offsets)-1), i)} {
			s := at(k, i)
			s.sum, s.n = s.sum+sum, s.n+count
		}
	}
	for i := range len(offsets) - 1 {
		s := at(levelKey(n.Std, groups, i), i)
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if mask[t] != 0 {
				d := n.subtractMean(sums, groups, i, x[t])
				s.squares += d * d
			}
		}
	}
	return sums
}

func groupsOrNone(groups []int, rows int) []int {
	if groups == nil {
		groups = make([]int, rows)
	}
	return groups
}

// subtractMean returns x less its mean.
func (n Normalization) subtractMean(sums map[int]*levelSet, groups []int, i int, x float64) float64 {
	k := levelKey(n.Mean, groups, i)
	if n.Mean == LevelNone || n.Mean == LevelGroup && k < 0 {
		return x
	}
	s := sums[k]
	if !n.LeaveOneOut {
		return x - Divide(s.sum, float64(s.n))
	}
	if s.n <= 1 || n.Mean == LevelGroup && !s.several {
		return x
	}
	return x - (s.sum-x)/float64(s.n-1)
}

// scaleDivisor returns the deviation with Epsilon.
func (n Normalization) scaleDivisor(sums map[int]*levelSet, groups []int, i int) float64 {
	if n.Std == LevelNone {
		return 1
	}
	k := levelKey(n.Std, groups, i)
	s := sums[k]
	switch {
	case n.Std == LevelGroup && k < 0:
		return n.Epsilon
	case n.Biased:
		return math.Sqrt(Divide(s.squares, float64(s.n))) + n.Epsilon
	case s.n <= 1, n.Std == LevelGroup && !s.several:
		return 1 + n.Epsilon
	default:
		return math.Sqrt(s.squares/float64(s.n-1)) + n.Epsilon
	}
}
