package loss

import "github.com/weir-rl/weir/trainer/stats"

// Part is one loss of a mixture, with the weight of each token in it: some tokens learn by reinforcement, others by
// imitation or distillation (prime-rl's routed losses).
type Part struct {
	Policy Policy
	// Mask is 1 at the tokens that the part may train; nil means the batch's. Of these, a weight of 0 removes a token.
	Mask []uint8
	// Weights a token multiply the loss; nil means 1.
	Weights []float64
	// Counts are the part's own denominators.
	Counts Counts
	// Out is the part's result.
	Out Result
}

// Mix fills out with the sum of the parts' losses and gradients. Each part's metrics are in its Out.
func Mix(b *Batch, parts []*Part, out *Result) error {
	out.Loss = 0
	out.Grad = stats.Resize(out.Grad, len(b.Mask))
	clear(out.Grad)
	for _, p := range parts {
		one := *b
		one.Weights, one.Counts = p.Weights, p.Counts
		if p.Mask != nil {
			one.Mask = p.Mask
		}
		if p.Weights != nil {
			if err := stats.CheckLength("Weights", p.Weights, len(one.Mask)); err != nil {
				return err
			}
			routed := make([]uint8, len(one.Mask))
			for t, w := range p.Weights {
				if w != 0 {
					routed[t] = one.Mask[t]
				}
			}
			one.Mask = routed
		}
		if err := p.Policy.Loss(&one, &p.Out); err != nil {
			return err
		}
		out.Loss += p.Out.Loss
		for t, g := range p.Out.Grad {
			out.Grad[t] += g
		}
	}
	return nil
}
