package openai

import (
	"context"
	"errors"

	"github.com/weir-rl/weir/schemas"
)

// Tokenizer turns text into token ids and back.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32) string
}

// Generator serves generate calls. A Generator that is a [Streamer] too streams each token when it is sampled.
type Generator interface {
	// Generate serves a call: it gives emit the chunks in order, the last with Done set. A request that is at fault gets a
	// chunk with Stop error, whose Error begins with [ErrBadRequest].
	Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error
	// Version is -1 until there are weights.
	Version() int64
}

// Streamer is a Generator that can hand out each token when it is sampled. Stream is Generate without waiting for a chunk to fill.
type Streamer interface {
	Stream(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error
}

// ErrBadRequest begins the Error of a chunk that refuses a request which no consumer can serve. Over HTTP it is status 400.
var ErrBadRequest = errors.New("bad request")
