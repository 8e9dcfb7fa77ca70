package torch

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// maxRestarts is how often in a row the process of a decoder may end within a batch.
const maxRestarts = 3

// Extend appends tokens to sequences and samples. When the process ends meanwhile, another takes its place.
func (d *Decoder) Extend(ctx context.Context, in []gpu.Extension) ([]gpu.Sampled, error) {
	if err := d.checkExtensions(in); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var failed error
	for range maxRestarts {
		g, err := d.runningGroup(ctx)
		if errors.Is(err, gpu.ErrLost) && !errors.Is(err, errEnded) { // it ended while it started
			failed = err
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("extend: %w", errors.Join(err, failed))
		}
		if d.filled != g { // its caches are empty
			d.filled, d.moves = g, nil
			d.forgetCaches()
		}
		out, err := d.sendBatch(ctx, g, in)
		if err == nil {
			for _, x := range in {
				s := &d.slots[x.Slot]
				s.tokens = append(s.tokens, x.Tokens...)
				s.held = len(s.tokens)
			}
			return out, nil
		}
		if !errors.Is(err, gpu.ErrLost) {
			d.forgetCaches() // it is not known what the process has appended and shared
			return nil, fmt.Errorf("extend: %w", err)
		}
		failed = err
		d.forgetGroup(g)
		if d.backend.Log != nil {
			d.backend.Log.Warn("the sampler's process has ended: another takes its place", "err", err)
		}
	}
	return nil, fmt.Errorf("extend: the process ended %d times: %w", maxRestarts, failed)
}

// forgetCaches has every sequence computed again.
func (d *Decoder) forgetCaches() {
	for i := range d.slots {
		d.slots[i].held = 0
	}
}

// checkExtensions refuses extensions before anything is sent.
func (d *Decoder) checkExtensions(in []gpu.Extension) error {
	seen := make(map[gpu.Slot]bool, len(in))
	for i := range in {
		x := &in[i]
		if x.Slot < 0 || int(x.Slot) >= len(d.slots) || !d.slots[x.Slot].open {
			return fmt.Errorf("extension %d: slot %d is not open", i, x.Slot)
		}
		if seen[x.Slot] {
			return fmt.Errorf("extension %d: slot %d is there twice", i, x.Slot)
		}
		seen[x.Slot] = true
		if err := d.checkOne(x); err != nil {
			return fmt.Errorf("extension %d: %w", i, err)
		}
	}
	return nil
}

func (d *Decoder) checkOne(x *gpu.Extension) error {
	if len(x.Tokens) == 0 {
		return errors.New("no tokens")
	}
	for _, t := range x.Tokens {
		if t < 0 || int(t) >= d.cfg.VocabSize {
			return fmt.Errorf("token %d: outside the vocabulary of %d", t, d.cfg.VocabSize)
		}
	}
	if n := len(d.slots[x.Slot].tokens) + len(x.Tokens); n > d.options.MaxTokens {
		return fmt.Errorf("%d tokens, a sequence takes %d: %w", n, d.options.MaxTokens, gpu.ErrTooLong)
	}
	if !x.Sample {
		return nil
	}
	switch t := x.Temperature; {
	case t != 0 && !(t >= gpu.MinTemperature && t <= gpu.MaxTemperature):
		return fmt.Errorf("temperature %g: must be 0, or between %g and %g", t, gpu.MinTemperature, gpu.MaxTemperature)
	case !(x.U >= 0 && x.U < 1):
		return fmt.Errorf("u %g: must be in [0, 1)", x.U)
	case x.TopLogprobs < 0 || x.TopLogprobs > d.cfg.VocabSize:
		return fmt.Errorf("%d of the most likely tokens: the vocabulary has %d", x.TopLogprobs, d.cfg.VocabSize)
	}
	return nil
}

// sendBatch sends a batch: of each sequence the tokens that the process does not have.
func (d *Decoder) sendBatch(ctx context.Context, g *group, in []gpu.Extension) ([]gpu.Sampled, error) {
	n := len(in)
	slots, starts, counts, tops := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	sample, temperature, u := make([]uint8, n), make([]float32, n), make([]float64, n)
	var tokens []int32
	for i, x := range in {
		s := &d.slots[x.Slot]
		slots[i], starts[i] = int32(x.Slot), int32(s.held)
		before := len(tokens)
		tokens = append(append(tokens, s.tokens[s.held:]...), x.Tokens...)
		counts[i] = int32(len(tokens) - before)
		if x.Sample {
			sample[i], temperature[i], u[i], tops[i] = 1, x.Temperature, x.U, int32(x.TopLogprobs)
		}
	}
	moves := d.moves
	if moves == nil {
		moves = [][]int{}
	}
	d.moves = nil
	c, err := g.callRank(0, "extend", map[string]any{"moves": moves},
		buffer{"slots", slots}, buffer{"starts", starts}, buffer{"counts", counts}, buffer{"sample", sample},
		buffer{"temperature", temperature}, buffer{"u", u}, buffer{"top", tops}, buffer{"tokens", tokens})
	if err != nil {
		return nil, err
	}
	defer c.endCall()
	f, err := c.nextAnswer(ctx)
	if err != nil {
		return nil, err
	}
	return readSampled(f, in)
}

// readSampled reads extend's answer.
func readSampled(f *frame, in []gpu.Extension) ([]gpu.Sampled, error) {
	tokens, ok1 := f.buffers["tokens"].([]int32)
	finite, ok2 := f.buffers["finite"].([]uint8)
	topTokens, ok3 := f.buffers["top_tokens"].([]int32)
	topLogprobs, ok4 := f.buffers["top_logprobs"].([]float32)
	logprobs, err := f.floatBuffer("logprobs", len(in))
	if err != nil || !ok1 || !ok2 || !ok3 || !ok4 || len(tokens) != len(in) || len(finite) != len(in) || len(topTokens) != len(topLogprobs) {
		return nil, errors.Join(err, errors.New("the sampler's answer is not that of its batch"))
	}
	out := make([]gpu.Sampled, len(in))
	for i, x := range in {
		out[i] = gpu.Sampled{Token: -1}
		switch {
		case !x.Sample:
			continue
		case finite[i] == 0:
			out[i].Err = gpu.ErrNotFinite
			continue
		}
		out[i].Token, out[i].Logprob = tokens[i], logprobs[i]
		if n := x.TopLogprobs; n > 0 {
			if n > len(topTokens) {
				return nil, errors.New("the sampler's answer lacks most likely tokens")
			}
			out[i].Top = make([]gpu.TokenLogprob, n)
			for j := range n {
				out[i].Top[j] = gpu.TokenLogprob{Token: topTokens[j], Logprob: topLogprobs[j]}
			}
			topTokens, topLogprobs = topTokens[n:], topLogprobs[n:]
		}
	}
	return out, nil
}
