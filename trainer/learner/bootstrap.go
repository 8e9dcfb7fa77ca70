package learner

import (
	"context"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// The rollouts after which the critic's value stands for the missing rest.
const (
	BootstrapNone    = "none"
	BootstrapTimeout = "timeout"
	BootstrapLimits  = "limits"
)

// bootstrapsAt reports whether a rollout with this reason to stop would have gone on.
func (a Advantage) bootstrapsAt(stop schemas.StopReason) bool {
	switch a.Bootstrap {
	case BootstrapTimeout:
		return stop == schemas.StopTimeout
	case BootstrapLimits:
		return isCutOff(stop)
	default:
		return false
	}
}

// bootstrapValues asks the critic for the value of the state after each row that ends a rollout which would have gone on; with parts by
// agent, after each agent's last row. A context that is as long as the model allows could not have gone on.
func (s *step) bootstrapValues(ctx context.Context) error {
	if !s.credit.needsField("Values") {
		return nil
	}
	last := map[int]int{}
	for i, part := range s.rows.Part {
		last[part] = i
	}
	var cut []int
	for i, part := range s.rows.Part {
		if last[part] == i && s.cfg.Advantage.bootstrapsAt(s.rows.Stop[i]) && s.rows.Length(i) < s.critic.engine.Config().MaxPositions {
			cut = append(cut, i)
		}
	}
	if cut == nil {
		return nil
	}
	s.before.bootstrap = make([]float64, s.rows.Len())
	longer := func(row int) int { return s.rows.Length(row) + 1 }
	micros := batch.Pack(cut, longer, limitBudget(s.cfg.MicroTokens, s.critic.engine))
	parts := make([]*gpu.Batch, len(micros))
	for i, micro := range micros {
		parts[i] = withNextToken(s.rows, micro)
	}
	return s.critic.engine.Evaluate(ctx, parts, func(i int, out *gpu.Outputs) error {
		for k, row := range micros[i] {
			s.before.bootstrap[row] = float64(out.Values[parts[i].Offsets[k+1]-1])
		}
		return nil
	})
}

// withNextToken packs some rows, each with a further token, and asks for the outputs of that token alone: its value is the value of the
// state before the token, whichever token it is.
func withNextToken(rows *batch.Rows, of []int) *gpu.Batch {
	b := &gpu.Batch{Offsets: []int{0}, ValuesOnly: true, Temperature: batch.Pick(of, rows.Temperature)}
	for _, row := range of {
		b.Tokens = append(append(b.Tokens, rows.Tokens[rows.Offsets[row]:rows.Offsets[row+1]]...), 0)
		b.Mask = append(append(b.Mask, make([]uint8, rows.Length(row))...), 1)
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	return b
}
