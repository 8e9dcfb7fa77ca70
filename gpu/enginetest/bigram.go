package enginetest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Bigram is the smallest policy: logits of the next token are a row of a table, and the value an entry of another. SGD
// with momentum stands in for AdamW, so that there is optimizer state to lose.
type Bigram struct {
	// Table holds the logits of the next token, a row for each token. Values are the states' after each token; nil without a
	// value head.
	Table, Values []float32
	// Momentum is the optimizer's, of the table, then of the values; Steps counts its steps.
	Momentum []float32
	Steps    int64

	vocab int
	grad  []float32
}

// NewBigram makes a Bigram without a value head, whose next tokens are all equally likely.
func NewBigram(vocab int) *Bigram { return BigramOf(gpu.Config{VocabSize: vocab}) }

// BigramOf makes a Bigram with the configuration's vocabulary, and its value head if it has one.
func BigramOf(c gpu.Config) *Bigram {
	e := &Bigram{vocab: c.VocabSize, Table: make([]float32, c.VocabSize*c.VocabSize)}
	if c.ValueHead {
		e.Values = make([]float32, c.VocabSize)
	}
	size := len(e.Table) + len(e.Values)
	e.grad = make([]float32, size)
	e.Momentum = make([]float32, size)
	return e
}

// Config is gpu.Engine's.
func (e *Bigram) Config() gpu.Config {
	return gpu.Config{VocabSize: e.vocab, HiddenSize: e.vocab, MaxPositions: 64, ValueHead: e.Values != nil}
}

// BigramLogprobs are the log-probabilities of each token after prev, by a Bigram's table.
func BigramLogprobs(table []float32, vocab int, prev int32) []float64 {
	row := table[int(prev)*vocab : (int(prev)+1)*vocab]
	out := make([]float64, vocab)
	top := math.Inf(-1)
	for _, v := range row {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range row {
		out[i] = float64(v) - top - math.Log(sum)
	}
	return out
}

// forward is a part's forward pass.
func (e *Bigram) forward(b *gpu.Batch) *gpu.Outputs {
	out := &gpu.Outputs{Logprobs: make([]float32, len(b.Tokens)), Entropies: make([]float32, len(b.Tokens))}
	if e.Values != nil {
		out.Values = make([]float32, len(b.Tokens))
	}
	for i, m := range b.Mask {
		if m == 0 {
			continue
		}
		if e.Values != nil {
			out.Values[i] = e.Values[b.Tokens[i-1]]
		}
		lp := BigramLogprobs(e.Table, e.vocab, b.Tokens[i-1])
		out.Logprobs[i] = float32(lp[b.Tokens[i]])
		for _, v := range lp {
			out.Entropies[i] -= float32(v * math.Exp(v))
		}
	}
	if b.ValuesOnly {
		out.Logprobs, out.Entropies = nil, nil
	}
	return out
}

// backward gathers a part's gradient.
func (e *Bigram) backward(b *gpu.Batch, g *gpu.Gradients) {
	for i, m := range b.Mask {
		if m == 0 {
			continue
		}
		prev := b.Tokens[i-1]
		if g.Values != nil {
			e.grad[len(e.Table)+int(prev)] += g.Values[i]
		}
		if g.Logprobs == nil {
			continue
		}
		for v, lp := range BigramLogprobs(e.Table, e.vocab, prev) {
			d := -math.Exp(lp)
			if int32(v) == b.Tokens[i] {
				d++
			}
			e.grad[int(prev)*e.vocab+v] += float32(float64(g.Logprobs[i]) * d)
		}
	}
}

// Step is gpu.Engine's.
func (e *Bigram) Step(_ context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	norm := 0.0
	for _, g := range e.grad {
		norm += float64(g) * float64(g)
	}
	for i, g := range e.grad {
		e.Momentum[i] = float32(o.Beta1)*e.Momentum[i] + g
		switch at := i - len(e.Table); {
		case at < 0:
			e.Table[i] -= float32(o.LearningRate) * e.Momentum[i]
		case o.ValueLearningRate > 0:
			e.Values[at] -= float32(o.ValueLearningRate) * e.Momentum[i]
		default:
			e.Values[at] -= float32(o.LearningRate) * e.Momentum[i]
		}
	}
	clear(e.grad)
	e.Steps++
	return gpu.StepStats{GradNorm: math.Sqrt(norm)}, nil
}

// Close is gpu.Engine's.
func (e *Bigram) Close() error { return nil }

// BigramRollout is a rollout of a ticket by a Bigram's table, of two to four sampled tokens. The reward counts the sampled
// tokens that are the successor of the token before. It depends on the ticket and the table alone.
func BigramRollout(table []float32, vocab int, t *schemas.Ticket, version int64) *schemas.Trajectory {
	rng := rand.New(rand.NewPCG(t.Seed, 7))
	prompt := int32(t.Cursor % uint64(vocab))
	s := schemas.Segment{
		Tokens: schemas.Int32s{0, prompt}, ActionMask: schemas.Bytes{0, 0}, Logprobs: schemas.Float32s{0, 0},
		Versions: schemas.Runs{schemas.NoVersion, schemas.NoVersion}, Temperature: t.Sampling.Temperature,
	}
	reward := 0.0
	for range 2 + rng.IntN(3) {
		prev := s.Tokens[len(s.Tokens)-1]
		u, next := rng.Float64(), int32(vocab-1)
		lp := BigramLogprobs(table, vocab, prev)
		for v, l := range lp {
			if t.Sampling.Temperature == 0 {
				next = int32(slices.Index(lp, slices.Max(lp)))
				break
			}
			if u -= math.Exp(l); u < 0 {
				next = int32(v)
				break
			}
		}
		if next == (prev+1)%int32(vocab) {
			reward++
		}
		s.Tokens, s.ActionMask = append(s.Tokens, next), append(s.ActionMask, 1)
		s.Logprobs, s.Versions = append(s.Logprobs, float32(lp[next])), append(s.Versions, int32(version))
	}
	return &schemas.Trajectory{
		ID: t.ID, Group: t.Group, Cursor: t.Cursor, Attempt: t.Attempt, Sample: t.Sample, GroupSize: t.GroupSize,
		Task: t.Task, PromptID: t.Prompt.ID, Source: "count", Producer: "p", Segments: []schemas.Segment{s},
		Reward: reward, Rewards: map[string]float64{"next": reward}, Stop: schemas.StopAnswer,
	}
}
