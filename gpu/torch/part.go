package torch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// checkPart refuses a part that a rank cannot run.
func checkPart(cfg gpu.Config, b *gpu.Batch) error {
	n := len(b.Tokens)
	if len(b.Mask) != n {
		return fmt.Errorf("batch: mask has %d entries for %d tokens", len(b.Mask), n)
	}
	if len(b.Offsets) == 0 || b.Offsets[0] != 0 || b.Offsets[len(b.Offsets)-1] != n {
		return fmt.Errorf("batch: offsets must begin with 0 and end with %d: %v", n, b.Offsets)
	}
	if b.ValuesOnly && !cfg.ValueHead {
		return errors.New("batch: values alone are asked for, but the model has no value head")
	}
	seqs := len(b.Offsets) - 1
	if b.Temperature != nil && len(b.Temperature) != seqs {
		return fmt.Errorf("batch: %d temperatures for %d sequences", len(b.Temperature), seqs)
	}
	for i, t := range b.Tokens {
		if t < 0 || int(t) >= cfg.VocabSize {
			return fmt.Errorf("batch: token %d at %d: outside the vocabulary of %d", t, i, cfg.VocabSize)
		}
	}
	for s := range seqs {
		lo, hi := b.Offsets[s], b.Offsets[s+1]
		if hi < lo || hi > n {
			return fmt.Errorf("batch: offsets must not decrease or pass %d: %d after %d", n, hi, lo)
		}
		if hi-lo > cfg.MaxPositions {
			return fmt.Errorf("batch: sequence %d has %d tokens, the model takes %d: %w", s, hi-lo, cfg.MaxPositions, gpu.ErrTooLong)
		}
		if b.Temperature != nil {
			if t := b.Temperature[s]; !(t > 0) || t > 1e30 {
				return fmt.Errorf("batch: temperature of sequence %d is %g: must be positive and finite", s, t)
			}
		}
	}
	return nil
}

// checkGradients refuses gradients that do not fit a part's outputs.
func checkGradients(cfg gpu.Config, b *gpu.Batch, g *gpu.Gradients) error {
	for _, x := range []struct {
		name string
		data []float32
		no   bool
		why  string
	}{
		{"log-probabilities", g.Logprobs, b.ValuesOnly, "values alone were asked for"},
		{"entropies", g.Entropies, b.ValuesOnly, "values alone were asked for"},
		{"values", g.Values, !cfg.ValueHead, "the model has no value head"},
	} {
		switch {
		case x.data == nil:
		case x.no:
			return fmt.Errorf("gradients of %s: %s", x.name, x.why)
		case len(x.data) != len(b.Tokens):
			return fmt.Errorf("gradients of %s: %d entries for %d tokens", x.name, len(x.data), len(b.Tokens))
		}
	}
	return nil
}

// nothing is the part of a rank for which a round has none.
var nothing = &gpu.Batch{Offsets: []int{0}}

// partRequest is a part as forward takes it.
func partRequest(b *gpu.Batch, keep, valuesOnly bool) (map[string]any, []buffer) {
	offsets, temperature := make([]int32, len(b.Offsets)), make([]float32, len(b.Offsets)-1)
	for i, o := range b.Offsets {
		offsets[i] = int32(o)
	}
	for i := range temperature {
		temperature[i] = 1
	}
	copy(temperature, b.Temperature)
	return map[string]any{"keep": keep, "values_only": valuesOnly},
		[]buffer{{"tokens", b.Tokens}, {"offsets", offsets}, {"mask", b.Mask}, {"temperature", temperature}}
}

// readOutputs reads forward's answer.
func (e *Engine) readOutputs(f *frame, b *gpu.Batch) (*gpu.Outputs, error) {
	o, n := &gpu.Outputs{}, len(b.Tokens)
	var errs [4]error
	if !b.ValuesOnly {
		o.Logprobs, errs[0] = f.floatBuffer("logprobs", n)
		o.Entropies, errs[1] = f.floatBuffer("entropies", n)
		o.ProbSquares, errs[2] = f.floatBuffer("squares", n)
	}
	if e.cfg.ValueHead {
		o.Values, errs[3] = f.floatBuffer("values", n)
	}
	return o, errors.Join(errs[:]...)
}

// round is the parts that the ranks run at once: parts[from:to].
type round struct {
	from, to int
	calls    []*call
}

// measureRound finds the settings that all ranks of a round share, whatever their parts: whether they run the model for values
// alone, and how often they run it. That is once or, where each sequence is run by itself, as often as the longest list of
// sequences needs.
func measureRound(parts []*gpu.Batch, deterministic bool) (valuesOnly bool, groups int) {
	valuesOnly = true
	for _, b := range parts {
		valuesOnly = valuesOnly && b.ValuesOnly
		sequences := 0
		for s := range b.Offsets[1:] {
			if b.Offsets[s+1] > b.Offsets[s] {
				sequences++
			}
		}
		groups = max(groups, sequences)
	}
	if !deterministic {
		groups = 1
	}
	return valuesOnly, groups
}

// beginRound sends each rank its part of a round.
func (e *Engine) beginRound(g *group, parts []*gpu.Batch, from int, keep bool) (*round, error) {
	r := &round{from: from, to: min(from+len(g.ranks), len(parts))}
	valuesOnly, groups := measureRound(parts[r.from:r.to], g.cfg.Deterministic)
	var err error
	r.calls, err = g.sendAll("forward", func(rank int) (map[string]any, []buffer) {
		part := nothing
		if from+rank < r.to {
			part = parts[from+rank]
		}
		header, buffers := partRequest(part, keep, valuesOnly)
		header["groups"] = groups
		return header, buffers
	})
	return r, err
}

// endRound waits for the outputs of a round.
func (e *Engine) endRound(ctx context.Context, r *round, parts []*gpu.Batch) ([]*gpu.Outputs, error) {
	frames, err := waitAll(ctx, r.calls)
	if err != nil {
		return nil, err
	}
	out := make([]*gpu.Outputs, r.to-r.from)
	for i := range out {
		if out[i], err = e.readOutputs(frames[i], parts[r.from+i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sendGradients sends each rank the gradients of its part, and waits until they are added. A round without gradients is passed
// over.
func (e *Engine) sendGradients(ctx context.Context, g *group, gradients []*gpu.Gradients) error {
	some, detached := false, make([]bool, len(g.ranks))
	for i, x := range gradients {
		if x != nil {
			some, detached[i] = true, x.Detached
		}
	}
	if !some {
		return nil
	}
	names := listNames(gradients)
	_, err := g.callAll(ctx, "backward", func(rank int) (map[string]any, []buffer) {
		var buffers []buffer
		if rank < len(gradients) && gradients[rank] != nil {
			buffers = listBuffers(gradients[rank])
		}
		return map[string]any{"detached": detached[rank], "names": names}, buffers
	})
	return err
}

// listBuffers are the gradients that are there, by the names of their outputs.
func listBuffers(x *gpu.Gradients) (out []buffer) {
	for _, b := range []struct {
		name string
		data []float32
	}{{"logprobs", x.Logprobs}, {"entropies", x.Entropies}, {"values", x.Values}} {
		if b.data != nil {
			out = append(out, buffer{b.name, b.data})
		}
	}
	return out
}

// listNames are the names of the outputs for which some rank of a round has gradients.
func listNames(gradients []*gpu.Gradients) []string {
	out := []string{}
	for _, x := range gradients {
		if x == nil {
			continue
		}
		for _, b := range listBuffers(x) {
			if !slices.Contains(out, b.name) {
				out = append(out, b.name)
			}
		}
	}
	return out
}
