package servers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
)

// Kind is a sort of inference server.
type Kind interface {
	// Name is the value of inference.engine.
	Name() string
	// Command is the command line that serves a folder, and the variables of its environment.
	Command(o Start) (args, env []string)
	// Mode is the pause by which such a server does what m means.
	Mode(m Mode) Mode
	// Speak is the wire format for a server at an address. It sends nothing.
	Speak(r *Remote) Speaker
}

// Start has the arguments of a server's start.
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
	// Offers reports whether the program knows an argument; nil is no.
	Offers func(argument string) bool
	// KeyFile is the file with the Keys of a [Keyed] kind; "" where there is none.
	KeyFile string
	// Plugin is the folder with the plugin of a [Plugged] kind; "" starts the server without.
	Plugin string
}

// Keyed is a kind whose programs take keys from a file, so that they are not on the command line, which everybody on the machine can read.
type Keyed interface {
	// Keys is the file's content, "" for none.
	Keys(o Start) string
}

// Coldest is a kind whose servers sample at a temperature of their own where a call's is above 0 and below Coldest.
type Coldest interface {
	Coldest() float32
}

// coldestOf is the lowest temperature above 0 at which servers of a kind sample as they are asked to.
func coldestOf(k Kind) float32 {
	if c, ok := k.(Coldest); ok {
		return max(c.Coldest(), gpu.MinTemperature)
	}
	return gpu.MinTemperature
}

// Mode is how a pause of a server treats the calls that run.
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

// Speaker sends requests to a server. Its methods may be called from any goroutine. Errors are a [StatusError] where the server answered
// with another status than 200, wrap [ErrMalformed] where the answer cannot be read, and are the transport's otherwise.
type Speaker interface {
	// Health is nil when the server can serve.
	Health(ctx context.Context) error
	// Model is the server's model. It also finds out which routes the server has.
	Model(ctx context.Context) (Model, error)
	// Generate makes a call, calls seen whenever something arrives, and [Query.TakePiece] whenever something of the answer does. The answer
	// is whole: it has a Finish.
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

// Model describes a server's model.
type Model struct {
	// Path is the folder, or the name of a repository.
	Path string
	// MaxTokens bounds a sequence; 0 where the server does not report it. Kept is how many positions of the server's own bound lie beyond.
	MaxTokens, Kept int
}

// Query is a call to a server.
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
	// Top is how many of the most likely tokens are listed for each sampled token; 0 is none.
	Top int
	// Each is given the answer so far whenever something of it arrives, and may end the call; nil is for no reader.
	Each func(*Answer) error
	// Bare leaves the sampling fields out, so that the server's defaults are in force. With Temperature above 0, that is sent.
	Bare bool
}

// TakePiece gives Each the answer so far. It fails where the answer is longer than was asked for, so that a stream without an end is not
// read on.
func (q *Query) TakePiece(a *Answer) error {
	if len(a.Tokens) > q.MaxTokens {
		return fmt.Errorf("%w: %d tokens where %d were asked for", ErrMalformed, len(a.Tokens), q.MaxTokens)
	}
	if q.Each == nil {
		return nil
	}
	return q.Each(a)
}

// Answer has the tokens that a server sampled for a call.
type Answer struct {
	Tokens []int32
	// Logprobs has an entry for each token; NaN where the server has none.
	Logprobs []float32
	// Likely has the most likely tokens at each position, the likeliest first, where asked for. A server may leave out the last
	// for the sampled token.
	Likely [][]Likely
	// Spans name the weights that sampled each token; nil where the server does not report them.
	Spans []Span
	// Label is that of the weights at the end; "" where the server does not report it.
	Label  string
	Finish Finish
	// Matched is the token that ended the answer; nil where the server does not report it.
	Matched *int32
	// Bound is how many tokens the server would have sampled at most; 0 where it does not report that.
	Bound int
	// Message is the server's reason of an abort or an error.
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

// SortLikely sorts the tokens that a server lists: the likeliest first, each token once.
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

// Logprob is a log-probability as servers write it: null, the sentinel -9999 and infinities are NaN.
func Logprob(x *float64) float32 {
	if x == nil || *x <= sentinel || math.IsInf(*x, 0) {
		return float32(math.NaN())
	}
	return float32(*x)
}

// sentinel stands for a log-probability that is missing.
const sentinel = -9999

// pauseMode is the pause that a swap mode asks for.
func pauseMode(m consumers.SwapMode) Mode {
	switch m {
	case consumers.SwapRecompute:
		return Recompute
	case consumers.SwapDrain:
		return Abort // nothing runs then
	default:
		return Keep
	}
}
