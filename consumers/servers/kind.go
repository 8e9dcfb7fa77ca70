package servers

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/weir-rl/weir/consumers"
)

// Kind is one sort of inference server.
type Kind interface {
	// Name is the value of inference.engine.
	Name() string
	// Command is the command line that serves a folder, and what it needs in its environment.
	Command(o Start) (args, env []string)
	// Mode is the pause that does at such a server what m means.
	Mode(m Mode) Mode
	// Speak is the wire format for one server. It sends nothing.
	Speak(r *Remote) Speaker
}

// Start is what a server is started with.
type Start struct {
	// Command and Args are inference.server.command and args.
	Command, Args []string
	// Dir is the model folder, Port the port on 127.0.0.1.
	Dir  string
	Port int
	// APIKey and AdminAPIKey are asked for where they are not "".
	APIKey, AdminAPIKey string
	// MaxTokens bounds a sequence, 0 is the model's own limit; Slots is how many run at once.
	MaxTokens, Slots int
	// Seed begins the server's random numbers.
	Seed uint32
	// Offers says whether the program knows an argument; nil is no.
	Offers func(argument string) bool
	// KeyFile has what Keys of a [Keyed] kind says; "" where there is none.
	KeyFile string
}

// Keyed is a kind whose programs take keys from a file, so that they are not on the command line, which everybody on the machine can read.
type Keyed interface {
	// Keys is the file's content, "" for none.
	Keys(o Start) string
}

// Mode says what becomes of the calls that run when a server pauses.
type Mode string

// The modes of a pause.
const (
	// Keep lets them go on after the pause with the cache that they have.
	Keep Mode = "keep"
	// Recompute lets them go on with their cache computed anew.
	Recompute Mode = "recompute"
	// Abort ends them.
	Abort Mode = "abort"
)

// Speaker asks one server. Its methods may be called from any goroutine. Errors are a [StatusError] where the server answered
// with one, wrap [ErrMalformed] where the answer cannot be read, and are the transport's otherwise.
type Speaker interface {
	// Health is nil when the server can serve.
	Health(ctx context.Context) error
	// Model is what the server says it has, and settles how it is spoken to.
	Model(ctx context.Context) (Model, error)
	// Generate makes one call, and calls seen whenever something arrives. The answer is whole: it has a Finish.
	Generate(ctx context.Context, q *Query, seen func()) (*Answer, error)
	// Pause returns when nothing is sampled any more.
	Pause(ctx context.Context, m Mode) error
	// Resume ends a pause. It may be called when there is none.
	Resume(ctx context.Context) error
	// Load replaces the weights by a folder's, which are called label from then on.
	Load(ctx context.Context, dir, label string, m Mode) error
	// SetLabel names the weights that the server has.
	SetLabel(ctx context.Context, label string) error
	// Label is the name of the weights that the server has.
	Label(ctx context.Context) (string, error)
}

// Model is what a server says of its model.
type Model struct {
	// Path is the folder, or the name of a repository.
	Path string
	// MaxTokens bounds a sequence; 0 where the server does not say. Kept is how many positions of the server's own bound lie beyond.
	MaxTokens, Kept int
}

// Query is one call to a server.
type Query struct {
	// ID is the call's own.
	ID string
	// Episode has the calls of a rollout go to where their cache is.
	Episode string
	// Salt keeps the caches of different weights apart.
	Salt        string
	Tokens      []int32
	MaxTokens   int
	Temperature float32
	Stop        []int32
	// Top is how many of the most likely tokens are to be told for each sampled one; 0 is none.
	Top int
	// Each is given the answer so far whenever something of it arrives, and may end the call; nil is for nobody.
	Each func(*Answer) error
	// Bare leaves the sampling fields out, so that the server's defaults are in force. With Temperature above 0, that is sent.
	Bare bool
}

// Answer is what a server sampled for a call.
type Answer struct {
	Tokens []int32
	// Logprobs has one entry a token; NaN where the server has none.
	Logprobs []float32
	// Likely has for each token the most likely ones, the likeliest first, where asked for. A server may leave the last one out
	// for the sampled token.
	Likely [][]Likely
	// Spans say which weights sampled which tokens; nil where the server does not say.
	Spans []Span
	// Label is that of the weights at the end; "" where the server does not say.
	Label  string
	Finish Finish
	// Matched is the token that ended the answer, where the server says so; nil where it does not.
	Matched *int32
	// Bound is how many tokens the server would have sampled at most, where it says so; 0 where it does not.
	Bound int
	// Message is what the server says of an abort or an error.
	Message string
	// Cached counts the tokens of the context that were in a cache.
	Cached int64
}

// Likely is a token that might have been sampled.
type Likely struct {
	Token int32
	// Logprob is NaN where the server has none: the token cannot be drawn.
	Logprob float32
}

// SortLikely puts what a server lists into order: the likeliest first, each token once.
func SortLikely(list []Likely) []Likely {
	slices.SortStableFunc(list, func(a, b Likely) int {
		return cmp.Compare(b.Logprob, a.Logprob) // NaN is the least
	})
	seen := map[int32]bool{}
	return slices.DeleteFunc(list, func(l Likely) bool {
		had := seen[l.Token]
		seen[l.Token] = true
		return had
	})
}

// Span is tokens [Start, End) of an answer, sampled by the weights of a label.
type Span struct {
	Label      string
	Start, End int
}

// Finish is why an answer ended.
type Finish string

// The ends of an answer.
const (
	FinishStop    Finish = "stop"
	FinishLength  Finish = "length"
	FinishAborted Finish = "abort"
	FinishError   Finish = "error"
)

// Logprob is a log-probability as servers write it: null, the sentinel -9999 and what is not finite are NaN.
func Logprob(x *float64) float32 {
	if x == nil || *x <= sentinel || math.IsInf(*x, 0) {
		return float32(math.NaN())
	}
	return float32(*x)
}

// sentinel stands for a log-probability that is missing.
const sentinel = -9999

// modeOf is the pause that a swap mode asks for.
func modeOf(m consumers.SwapMode) Mode {
	switch m {
	case consumers.SwapRecompute:
		return Recompute
	case consumers.SwapDrain:
		return Abort // nothing runs then
	default:
		return Keep
	}
}
