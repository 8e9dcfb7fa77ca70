package loss

import "github.com/weir-rl/weir/trainer/stats"

// Span is the part of a mini-batch that a policy loss reads at once.
type Span int

// The spans, from the narrowest to the widest.
const (
	// SpanRow is a single row at a time: Counts are all that a micro-batch needs of the others.
	SpanRow Span = iota
	// SpanFixed is the whole mini-batch, with the fields known before its first forward pass: Proximal and Behaviour.
	SpanFixed
	// SpanCurrent is the whole mini-batch, the current policy's log-probabilities included.
	SpanCurrent
)

// Plan has a policy loss's decisions over a whole mini-batch, made before the split into micro-batches: the tokens that the correction
// keeps and their weights, the tokens that clip_cov or kl_cov chooses, and the denominators of the rest.
type Plan struct {
	// Counts are the denominators of the policy loss; the terms beside it keep Batch.Counts.
	Counts Counts
	// Mask is the batch's mask, 0 also where the correction rejected a token.
	Mask []uint8
	// Weights multiply each token's loss, the batch's weights included; nil means 1.
	Weights []float64
	// Chosen are the tokens that clip_cov or kl_cov chose; nil for other losses.
	Chosen []bool
	// Metrics of the correction, over the whole mini-batch.
	Metrics Metrics
}

// Part is the plan of some rows, by their number in the mini-batch that offsets delimit, packed in that order.
func (p *Plan) Part(offsets, rows []int) *Plan {
	part := &Plan{Counts: p.Counts}
	for _, i := range rows {
		lo, hi := offsets[i], offsets[i+1]
		part.Mask = append(part.Mask, p.Mask[lo:hi]...)
		if p.Weights != nil {
			part.Weights = append(part.Weights, p.Weights[lo:hi]...)
		}
		if p.Chosen != nil {
			part.Chosen = append(part.Chosen, p.Chosen[lo:hi]...)
		}
	}
	return part
}

// Span follows from the algorithm and the correction.
func (p *policy) Span() Span {
	c := p.shared.Correction
	_, chooses := p.algorithm.(tokenChooser)
	wide := c.isEnabled() && (c.Normalize || c.M2Threshold > 0 || c.DropRejected)
	switch {
	case chooses, wide && c.Of == OfCurrent:
		return SpanCurrent
	case wide:
		return SpanFixed
	default:
		return SpanRow
	}
}

// Plan makes the plan of a whole mini-batch.
func (p *policy) Plan(b *Batch) (*Plan, error) {
	var old []float64
	err := stats.CheckRows(b.Offsets, b.Mask)
	if _, chooses := p.algorithm.(tokenChooser); chooses {
		old, err = p.checkBatch(b)
	}
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	if err := p.fillPlan(b, old, plan); err != nil {
		return nil, err
	}
	// The plan must not share the policy's scratch memory.
	plan = plan.Part([]int{0, len(b.Mask)}, []int{0})
	plan.Metrics = Metrics{}
	p.reportCorrection(plan.Metrics)
	return plan, nil
}

// fillPlan fills a plan from the batch, in the policy's scratch memory.
func (p *policy) fillPlan(b *Batch, old []float64, plan *Plan) (err error) {
	if plan.Mask, plan.Weights, err = p.correctBatch(b); err != nil {
		return err
	}
	if w, ok := p.algorithm.(tokenChooser); ok {
		plan.Chosen = w.chooseTokens(b.Logprobs, old, b.Advantages, plan.Mask)
	}
	plan.Counts = b.Counts.fillZeros(b.Offsets, p.countedMask(b.Mask, plan.Mask))
	return nil
}

// countedMask returns the mask that the denominators count.
func (p *policy) countedMask(all, kept []uint8) []uint8 {
	if p.shared.Correction.DropRejected {
		return kept
	}
	return all
}

// batchPlan returns the batch's plan; without a plan the batch is the whole mini-batch, and the plan is made from it.
func (p *policy) batchPlan(b *Batch, old []float64) (*Plan, error) {
	if b.Plan == nil {
		if p.Span() != SpanRow && (b.Counts.Tokens != 0 || b.Counts.Rows != 0) {
			return nil, stats.Fault("Plan", -1, "missing: %s looks at the whole mini-batch, which Counts say that this batch is not", p.name)
		}
		p.own = Plan{}
		return &p.own, p.fillPlan(b, old, &p.own)
	}
	n := len(b.Mask)
	if len(b.Plan.Mask) != n || b.Plan.Weights != nil && len(b.Plan.Weights) != n {
		return nil, stats.Fault("Plan", -1, "is of %d tokens, the batch has %d", len(b.Plan.Mask), n)
	}
	if _, chooses := p.algorithm.(tokenChooser); chooses && len(b.Plan.Chosen) != n {
		return nil, stats.Fault("Plan", -1, "chose among %d tokens, the batch has %d", len(b.Plan.Chosen), n)
	}
	return b.Plan, nil
}
