package gpu

import "context"

// Decoder samples from a model. It holds the model's weights, and a key-value cache for each open sequence. A [Backend] makes
// it.
//
// A single goroutine at a time calls its methods; Prepare alone may run beside them.
type Decoder interface {
	// Config describes the model.
	Config() Config
	// Open makes an empty sequence; Close frees it. ErrNoSlot is returned when every slot is taken.
	Open() (Slot, error)
	Close(Slot)
	// Truncate removes the tokens from index n on from the cache. Truncate(s, 0) empties the cache, so that the sequence can
	// be computed again under new weights. A sequence of at most n tokens stays as it is.
	Truncate(s Slot, n int)
	// Extend appends tokens to each named sequence, all in one batch, and samples the next token of each sequence whose
	// Extension asks for a sample. Result i belongs to in[i]; the results are valid until the next Extend. A sequence's result
	// depends on the sequence and its Extension alone, never on the rest of the batch. On an error nothing is appended to any
	// sequence.
	Extend(ctx context.Context, in []Extension) ([]Sampled, error)
	// Prepare lays new weights out beside the current weights. All the work, and every refusal (ErrMismatch), is here. The
	// returned commit puts the new weights to use between two Extends, by swapping pointers; caches stay as they are. Prepare
	// may run while other methods do. Call commit like any other method, at most once and before the next Prepare; weights that
	// are never committed are dropped. The decoder may keep the data of tensors of w, which the caller must not write to. It
	// copies numbers that come from a source.
	Prepare(w *Weights) (commit func(), err error)
}

// Sharer is a Decoder whose sequences can share a common beginning, as the samples of a prompt do.
type Sharer interface {
	// Share makes the sequence to hold the first n tokens of the sequence from, or all when there are fewer. It forgets what to
	// held before. A sequence shared with itself stays as it is. Both sequences use the same memory until either changes, and
	// neither sees the other's change. Later results of either have the bits that they would have had if the sequence had been
	// extended by these tokens.
	Share(to, from Slot, n int)
}

// Slot names a sequence of a Decoder.
type Slot int

// Extension is the tokens to append to a sequence, and how to sample the token after them.
type Extension struct {
	Slot Slot
	// Tokens are the tokens to append: at least 1.
	Tokens []int32
	// Sample asks for the token after Tokens. Without Sample the tokens only fill the cache, the model's head is not computed, and the
	// fields below are not read.
	Sample bool
	// Temperature divides the logits: the token is drawn from the full softmax of logits / Temperature. 0 takes the most likely
	// token, the lowest id among equals; log-probabilities are then those at temperature 1. Any other value must be between
	// MinTemperature and MaxTemperature.
	Temperature float32
	// U in [0, 1) draws the token by inverse cumulative distribution: the first token, by id, at which the
	// cumulative probability exceeds U.
	U float64
	// TopLogprobs is how many of the most likely tokens to return, at most the vocabulary's size. 0 returns none.
	TopLogprobs int
}

// Temperatures outside these bounds make a softmax in float32 meaningless.
const (
	MinTemperature = 1e-3
	MaxTemperature = 1e3
)

// Sampled is the result of an Extension.
type Sampled struct {
	// Token is the sampled token; -1 if the Extension asked for no sample or Err is not nil.
	Token int32
	// Logprob is the natural logarithm of the probability with which Token was drawn.
	Logprob float32
	// Top are the most likely tokens, most likely first and by id among equals; nil unless asked for.
	Top []TokenLogprob
	// Err wraps ErrNotFinite when a logit of this sequence is infinite or not a number. The tokens are appended nevertheless.
	Err error
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// DecoderOptions size a Decoder.
type DecoderOptions struct {
	// Slots is how many sequences can be open at once; it must be positive.
	Slots int
	// MaxTokens bounds the length of each sequence. It must be positive and at most Config.MaxPositions.
	MaxTokens int
	// DType is the type in which the decoder keeps matrices. BFloat16 halves their memory and the bytes read for each token;
	// the model sampled from is then the model with rounded weights. "" loses nothing: it is BFloat16 for matrices whose
	// numbers are all bfloat16, as in most published models, and Float32 for others.
	DType DType
	// Dir is a Hugging Face folder with the weights that the decoder is made over, which stays as it is until weights that were
	// prepared later are committed; a decoder that reads folders itself may take them from there. "" is none.
	Dir string
}
