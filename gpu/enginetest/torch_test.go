package enginetest_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
)

// The suite's reference and PyTorch are two implementations, and agree to float64's precision.
func TestTheReferenceAgreesWithPyTorch(t *testing.T) {
	for _, m := range enginetest.TorchModels(t) {
		t.Run(m.Name, func(t *testing.T) {
			r := enginetest.NewReference(m.Config, m.Start())
			logprobs, entropies, _, values := r.Forward(m.Batch())
			for name, got := range map[string][]float64{"logprobs": logprobs, "entropies": entropies, "values": values} {
				want := m.Outputs[name]
				require.Len(t, got, len(want), name)
				for i, x := range want {
					require.InDelta(t, x, got[i], 1e-7*math.Max(1, math.Abs(x)), "%s[%d]", name, i)
				}
			}
			for i, tokens := range m.Sequences {
				rows := r.Logits(tokens)
				require.InDeltaSlice(t, m.Logits[i], rows[len(rows)-1], 1e-7)
			}
		})
	}
}
