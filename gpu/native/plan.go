package native

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// plan is a batch, checked and copied, with the numbers that every pass over it needs.
type plan struct {
	tokens  []int32
	offsets []int
	// pos is each token's place in its sequence.
	pos []int32
	// Entry r of the outputs' rows: the hidden state at rows[r] predicts the token at rows[r]+1, at temps[r].
	rows  []int32
	temps []float32
	// valuesOnly leaves the head out.
	valuesOnly bool
}

// readBatch checks b and copies it.
func (p *plan) readBatch(m *model, b *gpu.Batch) error {
	n := len(b.Tokens)
	if len(b.Mask) != n {
		return fmt.Errorf("batch: mask has %d entries for %d tokens", len(b.Mask), n)
	}
	if len(b.Offsets) == 0 || b.Offsets[0] != 0 || b.Offsets[len(b.Offsets)-1] != n {
		return fmt.Errorf("batch: offsets must begin with 0 and end with %d: %v", n, b.Offsets)
	}
	if b.ValuesOnly && !m.cfg.ValueHead {
		return errors.New("batch: values alone are asked for, but the model has no value head")
	}
	seqs := len(b.Offsets) - 1
	if b.Temperature != nil && len(b.Temperature) != seqs {
		return fmt.Errorf("batch: %d temperatures for %d sequences", len(b.Temperature), seqs)
	}
	if err := m.checkTokens(b.Tokens); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	p.valuesOnly = b.ValuesOnly
	p.tokens = append(p.tokens[:0], b.Tokens...)
	p.offsets = append(p.offsets[:0], b.Offsets...)
	p.pos, p.rows, p.temps = p.pos[:0], p.rows[:0], p.temps[:0]
	for s := range seqs {
		lo, hi := b.Offsets[s], b.Offsets[s+1]
		if hi < lo || hi > n {
			return fmt.Errorf("batch: offsets must not decrease or pass %d: %d after %d", n, hi, lo)
		}
		if hi-lo > m.cfg.MaxPositions {
			return fmt.Errorf("batch: sequence %d has %d tokens, the model takes %d: %w", s, hi-lo, m.cfg.MaxPositions, gpu.ErrTooLong)
		}
		temp := float32(1)
		if b.Temperature != nil {
			temp = b.Temperature[s]
			if !(temp > 0) || temp > 1e30 {
				return fmt.Errorf("batch: temperature of sequence %d is %g: must be positive and finite", s, temp)
			}
		}
		for i := lo; i < hi; i++ {
			p.pos = append(p.pos, int32(i-lo))
			if i > lo && b.Mask[i] != 0 {
				p.rows = append(p.rows, int32(i-1))
				p.temps = append(p.temps, temp)
			}
		}
	}
	return nil
}

// longestSequence is the length of the longest sequence.
func (p *plan) longestSequence() int {
	n := 0
	for s := range len(p.offsets) - 1 {
		n = max(n, p.offsets[s+1]-p.offsets[s])
	}
	return n
}
