package advantage

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// processEpsilon is added to the largest process return.
const processEpsilon = 1e-6

// NormalizeProcess divides process rewards by their largest return in size over the whole batch (PRIME,
// arXiv 2502.01456, as in Agent-R1), where each row is a trajectory:
//
//	y = x / (max_it |sum_{s >= t} x_is| + 1e-6)
//
// out may be x.
func NormalizeProcess(offsets []int, x, out []float64) error {
	if len(offsets) < 2 || offsets[len(offsets)-1] != len(x) {
		return stats.Fault("ProcessRewards", -1, "%d entries do not fit the Offsets", len(x))
	}
	if err := stats.CheckLength("out", out, len(x)); err != nil {
		return err
	}
	var rows layout
	if err := rows.buildRows(&Batch{Offsets: offsets}); err != nil {
		return err
	}
	copy(out, x)
	return rows.normalizeProcess(offsets, out)
}

// normalizeProcess is NormalizeProcess over the layout's trajectories, in place: a return runs through all rows of its trajectory. a return
// runs through all rows of its trajectory.
func (l *layout) normalizeProcess(offsets []int, x []float64) error {
	if err := stats.CheckFinite("ProcessRewards", x, offsets, nil); err != nil {
		return err
	}
	largest := 0.0
	for k := range l.trajectoryCount() {
		running := 0.0
		for _, i := range slices.Backward(l.rowsOf(k)) {
			for _, v := range slices.Backward(x[offsets[i]:offsets[i+1]]) {
				running += v
				largest = max(largest, math.Abs(running))
			}
		}
	}
	for t := range x {
		x[t] /= largest + processEpsilon
	}
	return nil
}

// splitter separates process rewards from outcomes where the batch has them in a single array.
type splitter struct{ process, outcome []float64 }

// splitRewards returns the batch's process rewards and its other rewards.
func (s *splitter) splitRewards(b *Batch, l *layout) (process, outcome []float64, err error) {
	if b.ProcessRewards != nil {
		return b.ProcessRewards, b.Rewards, stats.CheckLength("ProcessRewards", b.ProcessRewards, len(b.Mask))
	}
	s.process = append(s.process[:0], b.Rewards...)
	s.outcome = stats.Resize(s.outcome, len(b.Rewards))
	clear(s.outcome)
	for k := range l.trajectoryCount() {
		if t := lastAction(b, l.rowsOf(k)); t >= 0 {
			s.process[t], s.outcome[t] = 0, b.Rewards[t]
		}
	}
	return s.process, s.outcome, nil
}

// lastAction is a trajectory's last action token, -1 if it has none.
func lastAction(b *Batch, rows []int) int {
	for _, row := range slices.Backward(rows) {
		for t := b.Offsets[row+1] - 1; t >= b.Offsets[row]; t-- {
			if b.Mask[t] != 0 {
				return t
			}
		}
	}
	return -1
}

// hasAction reports whether row i has an action token.
func hasAction(b *Batch, i int) bool { return slices.Contains(b.Mask[b.Offsets[i]:b.Offsets[i+1]], 1) }
