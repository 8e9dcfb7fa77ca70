package advantage

import "github.com/weir-rl/weir/trainer/stats"

// shapeRewards applies the length penalty to a group's rewards (prime-rl)::
//
//	R_i -= mean(R) sum_k weight_k x_ki / max(1, max_j x_kj)
func (e *outcome) shapeRewards(b *Batch, g int, members group) {
	p := e.LengthPenalty
	if p == (LengthPenalty{}) {
		return
	}
	n := len(members.rewards)
	costs := [3][]float64{make([]float64, n), make([]float64, n), make([]float64, n)}
	for j, trajectory := range e.layout.groupMembers(g)[:n] {
		for _, i := range e.layout.rowsOf(trajectory) {
			output, turns := countRuns(b.Mask[b.Offsets[i]:b.Offsets[i+1]])
			costs[0][j] += float64(output)
			costs[1][j] += float64(b.Offsets[i+1] - b.Offsets[i] - output)
			costs[2][j] += float64(turns)
		}
	}
	mean, _ := stats.MeanStd(members.rewards)
	for k, weight := range []float64{p.OutputTokens, p.InputTokens, p.Turns} {
		largest := 1.0
		for _, x := range costs[k] {
			largest = max(largest, x)
		}
		for j, x := range costs[k] {
			members.rewards[j] -= mean * weight * x / largest
		}
	}
}

// countRuns counts the action tokens and their runs.
func countRuns(mask []uint8) (tokens, turns int) {
	last := uint8(0)
	for _, m := range mask {
		tokens += int(m)
		if m != 0 && last == 0 {
			turns++
		}
		last = m
	}
	return tokens, turns
}
