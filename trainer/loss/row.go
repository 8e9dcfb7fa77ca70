package loss

import "github.com/weir-rl/weir/trainer/stats"

// row is a row of a micro-batch as an algorithm sees it: slices with an entry for each token.
type row struct {
	mask []uint8
	// logprobs are the current policy's log-probabilities, old the log-probabilities that the ratio is taken against.
	logprobs, old, advantages []float64
	// reference is nil unless the algorithm reads it.
	reference []float64
	// weights multiply token losses; nil means 1.
	weights []float64
	// chosen are the tokens that a tokenChooser chose; nil for others.
	chosen []bool
	// n counts the action tokens, > 0. scale multiplies every token loss: the aggregation.
	n     int
	scale float64
	// grad is to be filled: d Loss / d logprobs, scale and weights included. It starts at 0.
	grad []float64
	// detail is nil unless the caller asked for it.
	detail *Tokens
}

// tokenWeight returns the weight of token t.
func (r *row) tokenWeight(t int) float64 {
	if r.weights == nil {
		return 1
	}
	return r.weights[t]
}

// algorithm is a policy loss over a row. rowLoss returns the row's loss, scale and weights included, writes the gradient and adds to the
// tally.
type algorithm interface {
	rowLoss(r *row, tally *tally) float64
	// metrics names the tally's entries in use.
	metricNames() []string
}

// tally adds up an algorithm's metrics, in the order that it names them.
type tally [8]Mean

func (t *tally) addValue(metric int, value float64) {
	t[metric].Sum += value
	t[metric].Count++
}

// addFlag adds 1 if set, over 1.
func (t *tally) addFlag(metric int, set bool) {
	if set {
		t[metric].Sum++
	}
	t[metric].Count++
}

// policy runs an algorithm over the rows of a batch.
type policy struct {
	name      string
	shared    Shared
	old       string // the policy that ratios are taken against: OldProximal or OldBehaviour
	algorithm algorithm
	facts     Facts
	corrected Corrected
	own       Plan
	current   row
	sums      tally
}

func (p *policy) Name() string { return p.name }

func (p *policy) Loss(b *Batch, out *Result) error {
	old, err := p.checkBatch(b)
	if err != nil {
		return err
	}
	plan, err := p.batchPlan(b, old)
	if err != nil {
		return err
	}
	mask, weights := plan.Mask, plan.Weights
	counted := p.countedMask(b.Mask, mask)
	d := p.shared.Aggregation.withCounts(plan.Counts, b.Offsets, counted)
	out.Grad = stats.Resize(out.Grad, len(b.Mask))
	clear(out.Grad)
	out.Tokens.resizeAll(len(b.Mask))
	if out.Tokens != nil {
		copy(out.Tokens.Keep, mask)
	}
	out.Loss = 0
	p.sums = tally{}
	defer func() { p.current = row{} }()
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		n, total := stats.Count(mask[lo:hi]), stats.Count(counted[lo:hi])
		switch {
		case total == 0:
			out.Loss += d.emptyRowLoss(out.Grad[lo:hi])
			continue
		case n == 0:
			continue
		}
		p.current = row{
			mask: mask[lo:hi], logprobs: b.Logprobs[lo:hi], old: sliceOrNil(old, lo, hi), advantages: sliceOrNil(b.Advantages, lo, hi),
			weights: sliceOrNil(weights, lo, hi), chosen: sliceOrNil(plan.Chosen, lo, hi), n: n, scale: d.rowScale(total), grad: out.Grad[lo:hi],
			detail: out.Tokens.sliceTokens(lo, hi),
		}
		if p.facts.Reference {
			p.current.reference = b.Reference[lo:hi]
		}
		rowLoss := p.algorithm.rowLoss(&p.current, &p.sums)
		if !stats.Finite(rowLoss) && !p.shared.KeepNonFinite {
			return p.rowFault(b, i)
		}
		out.Loss += rowLoss
	}
	if out.Metrics == nil {
		out.Metrics = Metrics{}
	}
	clear(out.Metrics)
	for k, name := range p.algorithm.metricNames() {
		out.Metrics[name] = p.sums[k]
	}
	if b.Plan == nil { // else the plan has them, of the whole mini-batch
		p.reportCorrection(out.Metrics)
	}
	return nil
}

// sliceOrNil returns x[lo:hi], nil of nil.
func sliceOrNil[T any](x []T, lo, hi int) []T {
	if x == nil {
		return nil
	}
	return x[lo:hi]
}

// checkBatch checks shapes and returns the log-probabilities that ratios are taken against.
func (p *policy) checkBatch(b *Batch) (old []float64, err error) {
	if err := stats.CheckRows(b.Offsets, b.Mask); err != nil {
		return nil, err
	}
	n := len(b.Mask)
	if err := stats.CheckLength("Logprobs", b.Logprobs, n); err != nil {
		return nil, err
	}
	if !p.facts.NoAdvantages {
		if err := stats.CheckLength("Advantages", b.Advantages, n); err != nil {
			return nil, err
		}
	}
	for _, f := range []field{{"Proximal", b.Proximal}, {"Behaviour", b.Behaviour}, {"Weights", b.Weights}} {
		if f.x != nil {
			if err := stats.CheckLength(f.name, f.x, n); err != nil {
				return nil, err
			}
		}
	}
	if p.facts.Reference {
		if err := stats.CheckLength("Reference", b.Reference, n); err != nil {
			return nil, err
		}
	}
	if p.facts.NoOld {
		return nil, nil
	}
	old = b.Proximal
	if old == nil || p.old == OldBehaviour && b.Behaviour != nil {
		old = b.Behaviour
	}
	if err := stats.CheckLength("Behaviour", old, n); err != nil {
		return nil, err
	}
	return old, nil
}

// rowFault names the value that made row i's loss not finite.
func (p *policy) rowFault(b *Batch, i int) error {
	return firstFault(i, b, []field{
		{"Logprobs", b.Logprobs},
		{"Advantages", b.Advantages},
		{"Proximal", b.Proximal},
		{"Behaviour", b.Behaviour},
		{"Weights", b.Weights},
		{"Reference", b.Reference},
	})
}

func (t *Tokens) resizeAll(n int) {
	if t == nil {
		return
	}
	t.Loss, t.Ratio, t.Weight = stats.Resize(t.Loss, n), stats.Resize(t.Ratio, n), stats.Resize(t.Weight, n)
	t.Keep, t.Clipped, t.DualClipped = stats.Resize(t.Keep, n), stats.Resize(t.Clipped, n), stats.Resize(t.DualClipped, n)
	for _, x := range [][]float64{t.Loss, t.Ratio, t.Weight} {
		clear(x)
	}
	for _, x := range [][]uint8{t.Keep, t.Clipped, t.DualClipped} {
		clear(x)
	}
}

func (t *Tokens) sliceTokens(lo, hi int) *Tokens {
	if t == nil {
		return nil
	}
	return &Tokens{
		Loss: t.Loss[lo:hi], Ratio: t.Ratio[lo:hi], Weight: t.Weight[lo:hi],
		Keep: t.Keep[lo:hi], Clipped: t.Clipped[lo:hi], DualClipped: t.DualClipped[lo:hi],
	}
}

// setToken records token t.
func (t *Tokens) setToken(k int, loss, ratio, weight float64, flags clip) {
	if t == nil {
		return
	}
	t.Loss[k], t.Ratio[k], t.Weight[k] = loss, ratio, weight
	if flags.clipped {
		t.Clipped[k] = 1
	}
	if flags.dual {
		t.DualClipped[k] = 1
	}
}
