package native

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/check"
)

// Init sets how starting weights are drawn. Gains start at 1, biases and the value head at 0. Every other matrix is normal with
// mean 0 and standard deviation Config.InitStd or, when that is 0, 1/sqrt(inputs), the two matrices that write to the residual
// stream (o_proj, down_proj) divided by sqrt(2 layers).
type Init struct {
	// EmbeddingStd is the standard deviation of the embeddings, and of an untied head. 0 is that of the other matrices.
	EmbeddingStd float64 `koanf:"embedding_std"`
	// OutputFromValue c, when not 0, starts each head's output projection as c times the transpose of its value
	// projection: attending to a token then writes towards that token's own embedding, so copying is near
	// at hand from the first step. Query heads that share a value head get c/reps each.
	OutputFromValue float64 `koanf:"output_from_value"`
}

func (o Init) validate() error {
	return check.All(
		check.NotNegative("init.embedding_std", o.EmbeddingStd),
		check.Finite("init.output_from_value", o.OutputFromValue),
	)
}

// drawWeights draws the starting weights. Each tensor has a stream of numbers of its own, so it does not depend on the sizes of
// the others.
func (m *model) drawWeights(data []float32, seed uint64, o Init) {
	for i, t := range m.tensors {
		out := data[t.off : t.off+t.n]
		switch {
		case t.kind == gain:
			for j := range out {
				out[j] = 1
			}
		case t.kind == bias:
			clear(out)
		case t.name == gpu.ValueHeadTensor:
			clear(out)
		default:
			std := m.startingStd(t, o)
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for j := range out {
				out[j] = float32(r.NormFloat64() * std)
			}
		}
	}
	if o.OutputFromValue == 0 {
		return
	}
	c := float32(o.OutputFromValue / float64(m.reps))
	for _, w := range m.viewArray(data).layers {
		value := w.qkv[(m.q+m.kv)*m.d:]
		for i := range m.d {
			for h := range m.heads {
				for j := range m.hd {
					w.o[i*m.q+h*m.hd+j] = c * value[(h/m.reps*m.hd+j)*m.d+i]
				}
			}
		}
	}
}

func (m *model) startingStd(t spec, o Init) float64 {
	std := m.cfg.InitStd
	if std == 0 {
		std = 1 / math.Sqrt(float64(t.shape[1]))
		if strings.HasSuffix(t.name, "o_proj.weight") || strings.HasSuffix(t.name, "down_proj.weight") {
			std /= math.Sqrt(float64(2 * m.layers))
		}
	}
	if o.EmbeddingStd > 0 && (t.name == "model.embed_tokens.weight" || t.name == "lm_head.weight") {
		std = o.EmbeddingStd
	}
	return std
}
