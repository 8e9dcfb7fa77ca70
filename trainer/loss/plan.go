package loss

import "github.com/weir-rl/weir/trainer/stats"

// Span is what a policy loss looks at beyond single rows.
type Span int

// The spans, each wider than the one before.
const (
	// SpanRow is one row at a time: Counts are all that a micro-batch must know of the others.
	SpanRow Span = iota
	// SpanFixed is the whole mini-batch, of what stands before its first forward pass: Proximal and Behaviour.
	SpanFixed
	// SpanCurrent is the whole mini-batch, the current policy's log-probabilities included.
	SpanCurrent
)

// Plan is what a policy loss settles over a whole mini-batch before it is split into micro-batches: which tokens the
// correction keeps and how it weighs them, which ones clip_cov or kl_cov chooses, and the denominators of what is left.
type Plan struct {
	// Counts are the denominators of the policy loss; the terms beside it keep Batch.Counts.
	Counts Counts
	// Mask is the batch's, 0 where the correction rejected a token too.
	Mask []uint8
	// Weights multiply each token's loss, those of the batch included; nil means 1.
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
	_, chooses := p.algorithm.(whole)
	wide := c.enabled() && (c.Normalize || c.M2Threshold > 0 || c.DropRejected)
	switch {
	case chooses, wide && c.Of == OfCurrent:
		return SpanCurrent
	case wide:
		return SpanFixed
	default:
		return SpanRow
	}
}

// Plan settles what spans a whole mini-batch.
func (p *policy) Plan(b *Batch) (*Plan, error) {
	var old []float64
	err := stats.CheckRows(b.Offsets, b.Mask)
	if _, chooses := p.algorithm.(whole); chooses {
		old, err = p.check(b)
	}
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	if err := p.settle(b, old, plan); err != nil {
		return nil, err
	}
	// The policy's scratch memory is not the plan's.
	plan = plan.Part([]int{0, len(b.Mask)}, []int{0})
	plan.Metrics = Metrics{}
	p.report(plan.Metrics)
	return plan, nil
}

// settle fills a plan from the batch, in the policy's scratch memory.
func (p *policy) settle(b *Batch, old []float64, plan *Plan) (err error) {
	if plan.Mask, plan.Weights, err = p.correct(b); err != nil {
		return err
	}
	if w, ok := p.algorithm.(whole); ok {
		plan.Chosen = w.prepare(b.Logprobs, old, b.Advantages, plan.Mask)
	}
	plan.Counts = b.Counts.or(b.Offsets, p.counted(b.Mask, plan.Mask))
	return nil
}

// counted is the mask that the denominators count.
func (p *policy) counted(all, kept []uint8) []uint8 {
	if p.shared.Correction.DropRejected {
		return kept
	}
	return all
}

// planned is the batch's plan, or that of the batch alone where it is the whole mini-batch.
func (p *policy) planned(b *Batch, old []float64) (*Plan, error) {
	if b.Plan == nil {
		if p.Span() != SpanRow && (b.Counts.Tokens != 0 || b.Counts.Rows != 0) {
			return nil, stats.Fault("Plan", -1, "missing: %s looks at the whole mini-batch, which Counts say that this batch is not", p.name)
		}
		p.own = Plan{}
		return &p.own, p.settle(b, old, &p.own)
	}
	n := len(b.Mask)
	if len(b.Plan.Mask) != n || b.Plan.Weights != nil && len(b.Plan.Weights) != n {
		return nil, stats.Fault("Plan", -1, "is of %d tokens, the batch has %d", len(b.Plan.Mask), n)
	}
	if _, chooses := p.algorithm.(whole); chooses && len(b.Plan.Chosen) != n {
		return nil, stats.Fault("Plan", -1, "chose among %d tokens, the batch has %d", len(b.Plan.Chosen), n)
	}
	return b.Plan, nil
}
