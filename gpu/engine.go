package gpu

import "context"

// Engine is one policy model, its gradients and its optimizer. Calls are made by one goroutine at a time,
// but for Decoders, which are independent of the Engine once made. Gradients and moments are allocated on
// first use, so that an Engine used only to sample holds weights alone.
type Engine interface {
	// Config describes the model.
	Config() Config
	// Forward computes the outputs of a packed batch. With keep, what Backward needs is kept until the
	// next Forward. The outputs are valid until the next Forward.
	Forward(ctx context.Context, b *Batch, keep bool) (*Outputs, error)
	// Backward adds the gradient of the loss with respect to the parameters, for the last Forward with keep,
	// given its gradient with respect to that call's outputs.
	Backward(ctx context.Context, g *Gradients) error
	// Step clips the gathered gradient, takes one optimizer step and clears the gradient.
	Step(ctx context.Context, o StepOptions) (StepStats, error)
	// Weights copies the weights out.
	Weights(ctx context.Context) (*Weights, error)
	// SetWeights replaces the weights; names and shapes must match the configuration exactly.
	SetWeights(ctx context.Context, w *Weights) error
	// Optimizer copies out the optimizer's state: moments named like the weights with the suffixes ".m" and
	// ".v", and the count of steps taken.
	Optimizer(ctx context.Context) (*OptimizerState, error)
	SetOptimizer(ctx context.Context, s *OptimizerState) error
	// NewDecoder makes a sampler over a copy of the current weights.
	NewDecoder(o DecoderOptions) (Decoder, error)
	Close() error
}

// Batch is packed sequences: sequence s is Tokens[Offsets[s]:Offsets[s+1]], attended causally within itself.
type Batch struct {
	Tokens []int32
	// Offsets has one entry more than there are sequences; it begins with 0 and ends with len(Tokens).
	Offsets []int
	// Mask is 1 at the tokens whose outputs are wanted; the head is computed there alone. Same length as Tokens.
	Mask []uint8
	// Temperature divides the logits of each sequence, one entry a sequence, > 0; nil is 1 everywhere.
	Temperature []float32
	// ValuesOnly asks for Values alone and saves the work of the head: the other outputs are then nil.
	ValuesOnly bool
}

// Outputs has one entry a token, 0 where the batch's Mask is 0.
type Outputs struct {
	// Logprobs of the tokens, natural logarithm, at the sequence's temperature.
	Logprobs []float32
	// Entropies, in nats, of the distributions the tokens were drawn from, at the same temperature.
	Entropies []float32
	// ProbSquares are the sums over the vocabulary of the squared probabilities of those distributions; nil from an engine
	// that does not give them.
	ProbSquares []float32
	// Values of the states before the tokens; nil when the model has no value head.
	Values []float32
}

// Gradients of the loss with respect to Outputs; nil stands for zeros. Entries where Mask is 0 are ignored.
type Gradients struct {
	Logprobs  []float32
	Entropies []float32
	Values    []float32
	// Detached ends the gradient of Values at the value head: what is below it gets none.
	Detached bool
}

// StepOptions are those of AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).
type StepOptions struct {
	LearningRate float64
	// ValueLearningRate is the value head's own; 0 uses LearningRate.
	ValueLearningRate float64
	Beta1, Beta2      float64
	Epsilon           float64
	// WeightDecay applies to matrices, not to norms.
	WeightDecay float64
	// ClipNorm bounds the global L2 norm of the gradient; 0 does not clip.
	ClipNorm float64
	// Scale multiplies the gathered gradient first; 0 is 1.
	Scale float64
}

// StepStats is what one optimizer step did.
type StepStats struct {
	// GradNorm is the global L2 norm before clipping, after Scale.
	GradNorm float64
	// Skipped is true when the gradient was not finite: nothing was changed but the gradient cleared.
	Skipped bool
}
