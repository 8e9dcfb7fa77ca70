package enginetest

import (
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
)

// Reference is the model in float64, a token at a time.
type Reference struct {
	cfg gpu.Config
	// Params are the weights by name; tests move them to take differences.
	Params map[string][]float64
}

// NewReference copies weights to float64.
func NewReference(cfg gpu.Config, w *gpu.Weights) *Reference {
	r := &Reference{cfg: cfg, Params: map[string][]float64{}}
	for _, t := range w.Tensors {
		xs := make([]float64, len(t.Data))
		for i, v := range t.Data {
			xs[i] = float64(v)
		}
		r.Params[t.Name] = xs
	}
	return r
}

// Forward computes the same as gpu.Engine's forward pass.
func (r *Reference) Forward(b *gpu.Batch) (logprobs, entropies, squares, values []float64) {
	n := len(b.Tokens)
	logprobs, entropies, squares = make([]float64, n), make([]float64, n), make([]float64, n)
	if r.cfg.ValueHead {
		values = make([]float64, n)
	}
	for s := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[s], b.Offsets[s+1]
		temp := 1.0
		if b.Temperature != nil {
			temp = float64(b.Temperature[s])
		}
		hidden := r.Hidden(b.Tokens[lo:hi])
		for i := lo + 1; i < hi; i++ {
			if b.Mask[i] == 0 {
				continue
			}
			h := hidden[i-1-lo]
			p := LogSoftmax(r.rowLogits(h), temp)
			logprobs[i] = p[b.Tokens[i]]
			for _, x := range p {
				entropies[i] -= math.Exp(x) * x
				squares[i] += math.Exp(2 * x)
			}
			if values != nil {
				values[i] = dotProduct(r.Params["value_head.weight"], h)
			}
		}
	}
	return logprobs, entropies, squares, values
}

// Logits are the logits after every token of a sequence, at temperature 1.
func (r *Reference) Logits(tokens []int32) [][]float64 {
	var out [][]float64
	for _, h := range r.Hidden(tokens) {
		out = append(out, r.rowLogits(h))
	}
	return out
}

func (r *Reference) rowLogits(h []float64) []float64 {
	head := r.Params["lm_head.weight"]
	if r.cfg.TieEmbeddings {
		head = r.Params["model.embed_tokens.weight"]
	}
	return applyMatrix(head, h)
}

// Hidden is the normalized last hidden state at every token of a sequence.
func (r *Reference) Hidden(tokens []int32) [][]float64 {
	c := r.cfg
	d, hd := c.HiddenSize, c.AttentionDim()
	reps := c.NumHeads / c.NumKVHeads
	embed := r.Params["model.embed_tokens.weight"]
	xs := make([][]float64, len(tokens))
	for i, t := range tokens {
		xs[i] = append([]float64(nil), embed[int(t)*d:(int(t)+1)*d]...)
	}
	for l := range c.NumLayers {
		w := func(name string) []float64 { return r.Params[fmt.Sprintf("model.layers.%d.%s.weight", l, name)] }
		keys, values := make([][]float64, len(tokens)), make([][]float64, len(tokens))
		for i, x := range xs {
			h := r.normRow(x, w("input_layernorm"))
			project := func(name string) []float64 {
				y := applyMatrix(w("self_attn."+name+"_proj"), h)
				if c.QKVBias {
					addTo(y, r.Params[fmt.Sprintf("model.layers.%d.self_attn.%s_proj.bias", l, name)])
				}
				return y
			}
			q := project("q")
			keys[i], values[i] = project("k"), project("v")
			if c.QKNorm {
				for at := 0; at < len(q); at += hd {
					copy(q[at:], r.normRow(q[at:at+hd], w("self_attn.q_norm")))
				}
				for at := 0; at < len(keys[i]); at += hd {
					copy(keys[i][at:], r.normRow(keys[i][at:at+hd], w("self_attn.k_norm")))
				}
			}
			r.rotateHead(q, i)
			r.rotateHead(keys[i], i)
			att := make([]float64, len(q))
			for head := range c.NumHeads {
				at, kv := head*hd, head/reps*hd
				scores := make([]float64, i+1)
				for j := range scores {
					scores[j] = dotProduct(q[at:at+hd], keys[j][kv:kv+hd]) / math.Sqrt(float64(hd))
				}
				for j, p := range LogSoftmax(scores, 1) {
					for k := range hd {
						att[at+k] += math.Exp(p) * values[j][kv+k]
					}
				}
			}
			addTo(x, applyMatrix(w("self_attn.o_proj"), att))
			h = r.normRow(x, w("post_attention_layernorm"))
			gate, up := applyMatrix(w("mlp.gate_proj"), h), applyMatrix(w("mlp.up_proj"), h)
			for j, g := range gate {
				up[j] *= g / (1 + math.Exp(-g))
			}
			addTo(x, applyMatrix(w("mlp.down_proj"), up))
		}
	}
	for i, x := range xs {
		xs[i] = r.normRow(x, r.Params["model.norm.weight"])
	}
	return xs
}

func (r *Reference) normRow(x, gain []float64) []float64 {
	inv := 1 / math.Sqrt(dotProduct(x, x)/float64(len(x))+r.cfg.RMSNormEps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * inv * gain[i]
	}
	return y
}

func (r *Reference) rotateHead(x []float64, pos int) {
	hd := r.cfg.AttentionDim()
	for ; len(x) > 0; x = x[hd:] {
		for j := range hd / 2 {
			sin, cos := math.Sincos(float64(pos) * r.pairSpeed(j))
			a, b := x[j], x[j+hd/2]
			x[j], x[j+hd/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

// pairSpeed is the angle a position of pair j.
func (r *Reference) pairSpeed(j int) float64 {
	speed := math.Pow(r.cfg.RopeTheta, -2*float64(j)/float64(r.cfg.AttentionDim()))
	s := r.cfg.RopeScaling
	if s == nil {
		return speed
	}
	wavelength, original := 2*math.Pi/speed, float64(s.OriginalMaxPositions)
	longest, shortest := original/s.LowFreqFactor, original/s.HighFreqFactor
	switch {
	case wavelength > longest:
		return speed / s.Factor
	case wavelength < shortest:
		return speed
	}
	// Linear in the turns made within the original positions: 0 at the longest wavelength, 1 at the shortest.
	mix := (original/wavelength - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return speed * (mix + (1-mix)/s.Factor)
}

// LogSoftmax of xs / temp.
func LogSoftmax(xs []float64, temp float64) []float64 {
	top := math.Inf(-1)
	for _, x := range xs {
		top = math.Max(top, x/temp)
	}
	sum := 0.0
	for _, x := range xs {
		sum += math.Exp(x/temp - top)
	}
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = x/temp - top - math.Log(sum)
	}
	return out
}

// applyMatrix is the product of a matrix [out, len(x)] and x.
func applyMatrix(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		y[i] = dotProduct(w[i*len(x):(i+1)*len(x)], x)
	}
	return y
}

func dotProduct(a, b []float64) float64 {
	s := 0.0
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

func addTo(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
}
