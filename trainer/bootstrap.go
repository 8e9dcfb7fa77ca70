package trainer

import (
	"context"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
)

// After which rollouts the critic's value stands for what would have followed.
const (
	BootstrapNone    = "none"
	BootstrapTimeout = "timeout"
	BootstrapLimits  = "limits"
)

// bootstraps says whether a rollout that stopped so would have gone on.
func (a Advantage) bootstraps(stop schemas.StopReason) bool {
	switch a.Bootstrap {
	case BootstrapTimeout:
		return stop == schemas.StopTimeout
	case BootstrapLimits:
		return cutOff(stop)
	default:
		return false
	}
}

// bootstrap is the critic's value of the state after each row that ends a rollout which would have gone on, 0 for the
// others; nil when the advantage asks no critic, or there is no such row. A context that is as long as the model takes
// could not have gone on.
func (t *trainer) bootstrap(ctx context.Context, rows *batch.Rows) ([]float64, error) {
	if !slices.Contains(advantage.Requires(t.cfg.Advantage.Name, t.cfg.Advantage.Options), "Values") {
		return nil, nil
	}
	var cut []int
	for i := range rows.Len() {
		last := i+1 == rows.Len() || rows.Trajectory[i+1] != rows.Trajectory[i]
		if last && t.cfg.Advantage.bootstraps(rows.Stop[i]) && rows.Length(i) < t.critic.Config().MaxPositions {
			cut = append(cut, i)
		}
	}
	if cut == nil {
		return nil, nil
	}
	out := make([]float64, rows.Len())
	longer := func(row int) int { return rows.Length(row) + 1 }
	for _, micro := range batch.Pack(cut, longer, t.cfg.MicroTokens) {
		in := goneOn(rows, micro)
		values, err := t.critic.Forward(ctx, in, false)
		if err != nil {
			return nil, err
		}
		for k, row := range micro {
			out[row] = float64(values.Values[in.Offsets[k+1]-1])
		}
	}
	return out, nil
}

// goneOn packs some rows with a token more each, the only one whose outputs are asked for: its value is that of the state
// before it, and which token it is does not matter to that.
func goneOn(rows *batch.Rows, of []int) *gpu.Batch {
	b := &gpu.Batch{Offsets: []int{0}, ValuesOnly: true, Temperature: batch.Pick(of, rows.Temperature)}
	for _, row := range of {
		b.Tokens = append(append(b.Tokens, rows.Tokens[rows.Offsets[row]:rows.Offsets[row+1]]...), 0)
		b.Mask = append(append(b.Mask, make([]uint8, rows.Length(row))...), 1)
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	return b
}
