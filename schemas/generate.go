package schemas

// GenerateRequest asks an inference consumer to continue a context. It always carries the whole context, so that any engine can serve
// it; the engine that served the episode before has most of the context in its cache.
type GenerateRequest struct {
	Run string `msgpack:"run"`
	// Episode names the rollout.
	Episode string `msgpack:"episode"`
	// Context names a context of a rollout that continues several contexts in turn; "" is the first. Engines keep a cache for each: see
	// [GenerateRequest.Cache].
	Context string `msgpack:"context,omitempty"`
	// Tokens is the whole context so far.
	Tokens Int32s `msgpack:"tokens"`
	// MaxTokens bounds the new tokens, > 0.
	MaxTokens int `msgpack:"max_tokens"`
	// Temperature divides the logits; 0 is greedy.
	Temperature float32 `msgpack:"temperature"`
	// Seed and the absolute position of a token in the context fix the random number that draws it.
	Seed uint64 `msgpack:"seed"`
	// StopTokens end the generation; the sampled stop token is included in the output.
	StopTokens Int32s `msgpack:"stop_tokens"`
	// Last is whether the episode will not call again, so that its cache can go.
	Last bool `msgpack:"last"`
	// MinVersion is the oldest policy version that may sample: at an engine with an older version the call waits for the next
	// weights. 0 is any.
	MinVersion int64 `msgpack:"min_version,omitempty"`
	// Pinned is whether MinVersion alone may sample, every token. Pinned calls have a subject of their own.
	Pinned bool `msgpack:"pinned,omitempty"`
}

// Cache is the name under which engines keep the computed state of the context: the episode's, and of a further context
// "<episode>/<context>".
func (r *GenerateRequest) Cache() string {
	if r.Context == "" {
		return r.Episode
	}
	return r.Episode + "/" + r.Context
}

// GenerateChunk carries sampled tokens back as they come. The last chunk of a call has Done set.
type GenerateChunk struct {
	Episode string `msgpack:"episode"`
	// Engine names the inference consumer, so that the next call of the episode can go to it directly.
	Engine string `msgpack:"engine"`
	// Index counts the chunks of a call from 0, so that a lost chunk is noticed.
	Index    int      `msgpack:"index"`
	Tokens   Int32s   `msgpack:"tokens"`
	Logprobs Float32s `msgpack:"logprobs"`
	// Versions has an entry for each token.
	Versions Runs `msgpack:"versions"`
	Done     bool `msgpack:"done"`
	// Stop is set with Done: why generation ended.
	Stop GenerateStop `msgpack:"stop,omitempty"`
	// Error is set with Done when Stop is GenerateError: the refused request and the reason.
	Error string `msgpack:"error,omitempty"`
	// Retry is whether another engine, or this engine later, may serve the same call.
	Retry bool `msgpack:"retry,omitempty"`
	// Busy is set with Retry where nothing failed: the engine is full, or has no weights yet. A caller waits for as long as that
	// lasts, and does not count the refusal as a failure.
	Busy bool `msgpack:"busy,omitempty"`
}

// GenerateStop says why a generate call ended.
type GenerateStop string

// The reasons a generate call ends.
const (
	GenerateStopToken GenerateStop = "stop_token"
	GenerateLength    GenerateStop = "length"
	GenerateError     GenerateStop = "error"
)
