package gpu

import "context"

// Engine is a policy model, its gradients and its optimizer. A single goroutine at a time calls it.
//
// Weights and moments never pass through the caller: they leave and come as folders. The callbacks of Evaluate and
// Accumulate run on the calling goroutine, one at a time, and must not call the Engine. Gradients and moments are
// allocated on first use, so that an Engine that only imports and evaluates, as a frozen reference policy does, holds
// weights alone.
type Engine interface {
	// Config describes the model.
	Config() Config
	// Limits are the limits of the engine's calls.
	Limits() Limits
	// Evaluate runs parts through the model. each gets the outputs of part i, in the order of i; they are valid during that
	// call. An error of each ends Evaluate and is returned as it is; a fault in a part is returned as a [PartError].
	Evaluate(ctx context.Context, parts []*Batch, each func(i int, o *Outputs) error) error
	// Accumulate does the same, and gathers gradients: each returns the gradient of the loss with respect to part i's outputs,
	// and the gradient with respect to the parameters is added to the gathered gradient. nil stands for zeros. The arrays that
	// each returns must stay valid until its next call. An error leaves the gathered gradient undefined: Discard or Close.
	Accumulate(ctx context.Context, parts []*Batch, each func(i int, o *Outputs) (*Gradients, error)) error
	// Step clips the gathered gradient, takes an optimizer step and clears the gradient.
	Step(ctx context.Context, o StepOptions) (StepStats, error)
	// Discard clears the gathered gradient: weights, moments and the count of steps stay.
	Discard(ctx context.Context) error

	// Export writes the weights and config.json, in Hugging Face's form, into dir, a folder that is empty or not there. It
	// returns when no later call can change the files' contents; [Pending.Wait] returns when the files are whole. The same
	// model and options give the same file names, tensors and offsets in every version, so that a version's file i has the same
	// numbers in the same places as another version's. A value head lies in a file of its own, [ValueHeadFile].
	Export(ctx context.Context, dir string, o ExportOptions) (Pending, error)
	// Import replaces the weights by a folder's, in any of the types that Export writes, in files of any sizes. Before anything
	// is changed it refuses a folder that does not fit the model (ErrMismatch), lacks a file, has a malformed one, or holds a
	// number that is not finite; the error names the file and the tensor. A value head that the folder's config.json does not
	// name is set to 0. If the model has no value head, the folder's is not read. The gathered gradient is cleared; moments and
	// the count of steps stay. An error of the disk, or the end of ctx, may leave the weights half replaced: Import again or
	// Close.
	Import(ctx context.Context, dir string) error
	// SaveOptimizer writes the optimizer's moments into dir as float32, named like the weights with the suffixes ".m" and ".v".
	// It returns the count of steps taken, which no file holds: the caller keeps it with the folder.
	SaveOptimizer(ctx context.Context, dir string) (steps int64, err error)
	// LoadOptimizer replaces the moments by a folder's, and the count of steps. It refuses as Import does.
	LoadOptimizer(ctx context.Context, dir string, steps int64) error
	// ResetOptimizer sets the moments and the count of steps to 0.
	ResetOptimizer(ctx context.Context) error

	// Close frees the engine's memory and processes; it must not be used after it.
	Close() error
}

// Limits are an engine's limits and abilities.
type Limits struct {
	// Ranks is how many parts run at once, at least 1; a multiple of it keeps all ranks at work.
	Ranks int
	// MaxTokens bounds the tokens of a part; 0 is no bound. Sequences are never split, so that none may be longer.
	MaxTokens int
	// ProbSquares is true where Outputs has them.
	ProbSquares bool
	// Repeats is true where the same calls, after the same Import and LoadOptimizer, give the same bits again, in another process of the
	// same build too.
	Repeats bool
}

// Batch is packed sequences: sequence s is Tokens[Offsets[s]:Offsets[s+1]], attended causally within itself.
type Batch struct {
	Tokens []int32
	// Offsets has an entry for each sequence and one more; it begins with 0 and ends with len(Tokens).
	Offsets []int
	// Mask is 1 at the tokens whose outputs are wanted; the head is computed for these alone. Same length as Tokens.
	Mask []uint8
	// Temperature divides the logits of each sequence, an entry a sequence, > 0; nil is 1 everywhere.
	Temperature []float32
	// ValuesOnly asks for Values alone and saves the work of the head: the other outputs are then nil.
	ValuesOnly bool
}

// Outputs has an entry for each token, 0 where the batch's Mask is 0.
type Outputs struct {
	// Logprobs of the tokens, natural logarithm, at the sequence's temperature.
	Logprobs []float32
	// Entropies, in nats, of the distributions the tokens were drawn from, at the same temperature.
	Entropies []float32
	// ProbSquares are the sums over the vocabulary of the squared probabilities of the same distributions; nil from an engine
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
	// Detached ends the gradient of Values at the value head: the layers below get none.
	Detached bool
}

// StepOptions are the options of AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).
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
}

// StepStats are the figures of an optimizer step.
type StepStats struct {
	// GradNorm is the global L2 norm before clipping.
	GradNorm float64
	// Skipped is true when the gradient was not finite: nothing was changed but the gradient cleared.
	Skipped bool
}
