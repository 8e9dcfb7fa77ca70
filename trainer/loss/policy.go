package loss

import "github.com/weir-rl/weir/trainer/stats"

// Batch is the input of a loss: a micro-batch. Offsets and Mask are always set; the other fields as the chosen loss needs them: a missing
// array is an error that names it. Values at masked tokens are never read.
type Batch struct {
	// Offsets delimit the rows: len = rows + 1, from 0 to the number of tokens.
	Offsets []int
	// Mask is 1 at action tokens, else 0.
	Mask []uint8
	// Logprobs are the log-probabilities of the current policy, Proximal of the policy at the start of the step, Behaviour of the policy
	// that sampled. Proximal nil means Behaviour, Behaviour nil means Proximal.
	Logprobs, Proximal, Behaviour []float64
	Advantages                    []float64
	// Weights multiply each token's policy loss: importance weights made once for the whole step (Correct), the
	// share of an action's duration (Duration.Weights). Nil means 1.
	Weights []float64
	// Reference are the frozen reference policy's log-probabilities, for the KL term and ref_kl.
	Reference []float64
	// Entropies of the current policy at each token, in nats, for the entropy bonus.
	Entropies []float64
	// Values are the critic's present values, OldValues its values at the start of the step, Returns its targets.
	Values, OldValues, Returns []float64
	// ValueMask is 1 at the tokens that the critic learns at, and ValueCounts are the denominators of its loss. Nil means Mask and Counts.
	ValueMask   []uint8
	ValueCounts Counts
	// Counts are the denominators of the aggregation over the whole mini-batch, so that splitting it into micro-batches changes nothing.
	// Zero values mean that this batch is the whole mini-batch.
	Counts Counts
	// Plan is this batch's part of the policy loss's plan over the whole mini-batch. Nil means that the batch is a whole mini-batch, or
	// that the loss looks at single rows (Policy.Span).
	Plan *Plan
}

// Counts are taken over every micro-batch, and every worker, of an optimizer step.
type Counts struct {
	// Tokens is the number of action tokens; Rows the number of rows with an action token; Empty the number of rows without.
	Tokens, Rows, Empty int
}

// Count counts the action tokens, and the rows that have any or none.
func Count(offsets []int, mask []uint8) Counts {
	var c Counts
	for i := range len(offsets) - 1 {
		n := stats.Count(mask[offsets[i]:offsets[i+1]])
		c.Tokens += n
		c.Rows += min(n, 1)
	}
	c.Empty = len(offsets) - 1 - c.Rows
	return c
}

// fillZeros takes zero counts from a batch.
func (c Counts) fillZeros(offsets []int, mask []uint8) Counts {
	own := Count(offsets, mask)
	if c.Tokens == 0 {
		c.Tokens = own.Tokens
	}
	if c.Rows == 0 && c.Empty == 0 {
		c.Rows, c.Empty = own.Rows, own.Empty
	}
	return c
}

// Add is the count over both.
func (c Counts) Add(d Counts) Counts {
	return Counts{Tokens: c.Tokens + d.Tokens, Rows: c.Rows + d.Rows, Empty: c.Empty + d.Empty}
}

// Result is the loss, its gradients and its metrics.
type Result struct {
	// Loss of this batch; the losses of a mini-batch's micro-batches add up to the mini-batch's.
	Loss float64
	// Grad is d Loss / d Logprobs, with an entry for each token, 0 where the mask is 0.
	Grad []float64
	// GradEntropies and GradValues are d Loss / d Entropies and d Loss / d Values; empty when the loss has no
	// such term.
	GradEntropies, GradValues []float64
	// Metrics by name.
	Metrics Metrics
	// Tokens, when the caller sets it, is filled with details of each token.
	Tokens *Tokens
}

// Tokens are details a token of the policy loss, for viewers and tests. 0 where the mask is 0.
type Tokens struct {
	// Loss before aggregation, Ratio to the old policy, Weight that multiplied the loss.
	Loss, Ratio, Weight []float64
	// Keep is 0 where a rejection rule dropped the token.
	Keep []uint8
	// Clipped is 1 where the clip took the gradient, DualClipped where the dual clip did.
	Clipped, DualClipped []uint8
}

// Mean is a metric that adds up over micro-batches and workers.
type Mean struct{ Sum, Count float64 }

// Value is the mean, 0 over nothing.
func (m Mean) Value() float64 {
	if m.Count == 0 {
		return 0
	}
	return m.Sum / m.Count
}

// Metrics are means by name.
type Metrics map[string]Mean

// Add adds another micro-batch's metrics.
func (m Metrics) Add(other Metrics) {
	for name, v := range other {
		m[name] = Mean{m[name].Sum + v.Sum, m[name].Count + v.Count}
	}
}

// Policy is a policy loss. It does not keep its arguments; out's slices are reused when large enough. A fault in the batch is a
// *stats.BatchError that names the field and the row. A policy reuses scratch memory from call to call, so it must not be called by several
// goroutines at once.
type Policy interface {
	// Name in configuration.
	Name() string
	// Span is the part of a mini-batch that Plan reads: with SpanRow no plan is needed.
	Span() Span
	// Plan makes the plan of a whole mini-batch, from the fields that Span names. Counts of b that are not zero stand.
	Plan(b *Batch) (*Plan, error)
	Loss(b *Batch, out *Result) error
}
