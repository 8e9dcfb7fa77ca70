package assembly

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/weights"
)

// Sampler is the policy that scores sample from. It is a private inference engine, whose version changes only when its owner swaps it, so
// that a score belongs to a single version; the run's own inference consumers, which have that version or a newer version; or, through the
// run's producers, the copy of that version that inference consumers hold beside the newest.
type Sampler struct {
	Engine consumers.Sampler
	// folder has the engine read versions from there; nil gives it the weights in memory.
	folder *consumers.Folder
	// calls asks the run's inference consumers, in place of an engine; oldest is the oldest version that may answer.
	calls  *generate.Client
	oldest int64
	// producers run the episodes, pinned to oldest, in place of this process; account counts their tickets.
	producers *evaluation.Client
	account   *evaluation.Account
}

// newSampler starts a private engine in this process; it ends with ctx. The wait returns when it has.
func newSampler(ctx context.Context, cfg *config.Config) (*Sampler, func() error, error) {
	engines, err := cfg.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	p := &Sampler{Engine: consumers.NewBatcher(scoringConfig(cfg), engines.NewDecoder, nil)}
	return p, p.runEngine(ctx), nil
}

// scoringConfig is how an engine samples for scores alone.
func scoringConfig(cfg *config.Config) consumers.Config {
	own := cfg.Inference
	own.Slots, own.MaxRunning = max(cfg.Eval.Concurrency, 8), 0
	own.StepTokenBudget = max(own.StepTokenBudget, own.Slots)
	return own
}

// runEngine runs the engine until ctx ends or the returned function is called, which waits for its end.
func (p *Sampler) runEngine(ctx context.Context) (wait func() error) {
	ctx, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return p.Engine.Run(ctx) })
	return func() error { stop(); return group.Wait() }
}

// useVersion puts a version to use.
func (p *Sampler) useVersion(ctx context.Context, v consumers.Snapshot) error {
	_, err := p.Engine.Swap(ctx, v)
	return err
}

// bringVersion puts a published version to use.
func (p *Sampler) bringVersion(ctx context.Context, from versionSource, m *schemas.Manifest) error {
	p.oldest = m.Version
	if p.calls != nil || p.producers != nil {
		return nil
	}
	from.folder = p.folder
	v, err := from.fetchVersion(ctx, m)
	if err != nil {
		return err
	}
	if err := p.useVersion(ctx, v); err != nil || p.folder == nil {
		return err
	}
	return p.folder.Tidy()
}

// versionSource is where the published versions of a run are read from.
type versionSource struct {
	run     *streams.Run
	course  *Course
	weights weights.Config
	// folder takes versions as files; nil has them in memory.
	folder *consumers.Folder
}

// fetchVersion reads a published version, which must be of the run's tokenizer.
func (f versionSource) fetchVersion(ctx context.Context, m *schemas.Manifest) (consumers.Snapshot, error) {
	source, err := weights.NewLoader(f.run, f.weights)
	if err != nil {
		return consumers.Snapshot{}, err
	}
	var v consumers.Snapshot
	if hash := schemas.ContentHash(f.course.Tokenizer.JSON()); f.folder == nil {
		v, err = consumers.Fetch(ctx, source, m, hash)
	} else {
		v, err = f.folder.Land(ctx, source, m, hash)
	}
	if err != nil {
		return v, fmt.Errorf("fetch version %d: %w", m.Version, err)
	}
	return v, nil
}

// Generate makes the sampler a producers.Policy.
func (p *Sampler) Generate(ctx context.Context, req *schemas.GenerateRequest) (*generate.Result, error) {
	if p.calls != nil {
		ask := *req
		ask.MinVersion = max(ask.MinVersion, p.oldest)
		return p.calls.Generate(ctx, &ask)
	}
	out := &generate.Result{Engine: "scores"}
	err := p.Engine.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
		out.Tokens = append(out.Tokens, c.Tokens...)
		out.Logprobs = append(out.Logprobs, c.Logprobs...)
		out.Versions = append(out.Versions, c.Versions...)
		out.Stop = c.Stop
		if c.Done && c.Stop == schemas.GenerateError {
			return errors.New(c.Error)
		}
		return nil
	})
	return out, err
}

// Forget frees the cache of an episode, as a producers.Forgetter does.
func (p *Sampler) Forget(episode string) error {
	if p.calls != nil {
		return p.calls.Forget(episode)
	}
	if f, ok := p.Engine.(consumers.Forgetter); ok {
		f.Forget(episode)
	}
	return nil
}
