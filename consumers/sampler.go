package consumers

import (
	"context"
	"time"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Sampler generates tokens with a single policy version at a time. [Batcher] samples with a [gpu.Decoder] in this process; another
// Sampler may stand for an inference server beside it. [Run] drives a Sampler: it swaps published versions in and serves
// calls with it.
type Sampler interface {
	// Run works until ctx ends, and then ends the calls that are left with a chunk that has Retry set. It returns an error when
	// nothing can be sampled any more. It is called once.
	Run(ctx context.Context) error
	// Swap puts a version to use and returns when it is in use. An error leaves the old version in use; it wraps ErrBadWeights
	// when the snapshot is at fault, and the same snapshot is offered again after any other error. A single goroutine calls it.
	Swap(ctx context.Context, s Snapshot) (Swapped, error)
	// Version is the policy version in use; -1 before the first. Any goroutine may call it.
	Version() int64
	// Load is how busy the Sampler is. Any goroutine may call it.
	Load() Load
	// Generate serves a call: it gives emit the chunks in order, each from the calling goroutine, and returns after the last
	// chunk, which has Done set. Each token comes with its log-probability and with the version that sampled it. Chunks need no
	// Episode, Engine or Index: the server sets them.
	//
	// Token i of the context is drawn with the same random number whenever the request's seed and i are the same, so that another
	// consumer can go on with a call. A request for a MinVersion above Version waits. A call that the Sampler refuses gets
	// a single chunk with Stop error: with Retry where another consumer may serve the call, and with Busy where the Sampler is
	// full. An error means that the call was dropped: ctx ended, or emit failed. Any goroutine may call Generate.
	Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error
}

// Forgetter is a Sampler that keeps a cache for each episode. Forget frees the cache of an episode that will not call again, once
// its call, if there is a call, has ended. Any goroutine may call it.
type Forgetter interface{ Forget(episode string) }

// Streamer is a Sampler that can hand out each token when it is sampled. Stream is Generate without waiting for a chunk to fill.
type Streamer = openai.Streamer

// Snapshot is a policy version, ready to be used.
type Snapshot struct {
	// Version is the policy version, from 0.
	Version int64
	// Config is the model's; it must be the same in every snapshot that a Sampler is given.
	Config gpu.Config
	// Weights are the version's tensors. The Sampler may keep them: the caller must not write to them.
	Weights *gpu.Weights
	// Dir is a Hugging Face folder with the version's weights; it is read where Weights is nil. A [Folder] that made it removes it
	// when newer versions are in use: Hold it while it is read.
	Dir string

	// lease is nil where no Folder made Dir.
	lease *lease
}

// Swapped has the durations of a swap's parts.
type Swapped struct {
	// Prepare is how long the weights were checked and laid out, while generation went on.
	Prepare time.Duration
	// Wait is the time from there until no step was under way or, under SwapDrain, until the running calls had ended.
	Wait time.Duration
	// Pause is how long generation stood still.
	Pause time.Duration
}

// Load is how busy a Sampler is.
type Load struct {
	// Running calls generate, Waiting calls wait for a slot or for newer weights.
	Running, Waiting int
	// Idle is how many episodes have a cache and no call.
	Idle int
	// CacheUse is the share of the cache's slots, or of its memory, that is taken: 0 to 1.
	CacheUse float64
	// PrefixHits is how many context tokens were found in a cache so far.
	PrefixHits int64
}
