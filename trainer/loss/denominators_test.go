package loss

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Defect P20: what a loss says of each token was held by nothing. Averaged as its aggregation's name says, it is the loss.
func TestTheLossIsTheAverageOfItsTokens(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		for _, mode := range modes(name) {
			rapid.Check(t, func(t *rapid.T) {
				b := drawBatch(t)
				p, err := newOf(name, options{Aggregation: mode, Correction: Correction{Weight: WeightToken}})
				require.NoError(t, err)
				plan, err := p.Plan(b)
				require.NoError(t, err)
				b.Plan = plan
				out := Result{Tokens: &Tokens{}}
				require.NoError(t, p.Loss(b, &out))
				sum, means, acting, tokens := 0.0, 0.0, 0.0, 0.0
				for i := range len(b.Offsets) - 1 {
					row, n := 0.0, 0.0
					for k := b.Offsets[i]; k < b.Offsets[i+1]; k++ {
						if b.Mask[k] != 0 {
							row, n = row+out.Tokens.Loss[k], n+1
						}
					}
					if name == "gmpo" {
						row /= max(1, n) // each token has the loss of its row
					}
					if n > 0 {
						sum, means, acting, tokens = sum+row, means+row/n, acting+1, tokens+n
					}
				}
				want := map[string]float64{
					TokenMean: sum / tokens, SeqMeanTokenSum: sum / acting, SeqMeanTokenMean: means / acting,
					SeqMeanTokenSumNorm: sum / float64(max(1, mode.Length)),
				}
				require.Contains(t, want, mode.Mode)
				require.InDelta(t, want[mode.Mode], out.Loss, 1e-9, "%s, %s", name, mode.Mode)
			})
		}
	}
}
