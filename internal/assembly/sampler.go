package assembly

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/weights"
)

// Sampler is what scores are sampled from. It is a private inference engine, a policy whose version changes only when its owner says
// so, which makes a score belong to one version; the run's own inference consumers, which have that version or a newer one; or, by way of
// the run's producers, what inference consumers hold of that version beside the newest.
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
func newSampler(ctx context.Context, s *Run) (*Sampler, func() error, error) {
	engines, err := s.Config.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	p := &Sampler{Engine: consumers.NewBatcher(scoringConfig(s.Config), engines.NewDecoder, nil)}
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

// newRunSampler is what the versions of a run that goes on are scored with, until ending: where inference servers sample for it, these,
// and a private engine otherwise, which reads large versions from files.
func (s *Run) newRunSampler(ctx context.Context, run *streams.Run, c *Course, ending <-chan struct{}) (*Sampler, func() error, error) {
	account, err := evaluation.NewAccount(s.registry)
	if err != nil {
		return nil, nil, err
	}
	if s.Config.Eval.At == config.EvalAtProducers {
		asks := evaluation.NewClient(run, evaluation.ClientOptions{Kept: run.Keeps, Ending: ending})
		return &Sampler{producers: asks, account: account}, func() error { return nil }, nil
	}
	if _, servers := serverKinds[s.Config.Inference.Engine]; servers {
		p := &Sampler{calls: generate.NewClient(run, generate.ClientOptions{Ending: ending})}
		return p, func() error { p.calls.Close(); return nil }, nil
	}
	p, wait, err := newSampler(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	large, err := s.largeModel(c)
	if err != nil || !large {
		return p, wait, errors.Join(err, unlessNil(err, wait))
	}
	folder, closeFolder, err := s.openVersions(c, filepath.Join(s.Config.Folder(), "scores"))
	if err != nil {
		return nil, nil, errors.Join(err, wait())
	}
	p.folder = folder
	return p, func() error { defer closeFolder(); return wait() }, nil
}

// unlessNil does what ends something after an error.
func unlessNil(err error, end func() error) error {
	if err == nil {
		return nil
	}
	return end()
}

// newLastSampler is what the last version is scored with when nothing else samples any more: what inference.engine names, with one
// server where Weir starts them.
func (s *Run) newLastSampler(ctx context.Context, c *Course) (*Sampler, func() error, error) {
	cfg := scoringConfig(s.Config)
	cfg.Server.Count = 1
	cfg.Server.Devices = cfg.Server.Devices[:min(1, len(cfg.Server.Devices))]
	engine, folder, closeFolder, err := s.openSampler(&cfg, c, nil)
	if err != nil {
		return nil, nil, err
	}
	p := &Sampler{Engine: engine, folder: folder}
	wait := p.runEngine(ctx)
	return p, func() error { defer closeFolder(); return wait() }, nil
}

// useVersion puts a version to use.
func (p *Sampler) useVersion(ctx context.Context, v consumers.Snapshot) error {
	_, err := p.Engine.Swap(ctx, v)
	return err
}

// bringVersion puts a published version to use.
func (p *Sampler) bringVersion(ctx context.Context, s *Run, run *streams.Run, c *Course, m *schemas.Manifest) error {
	p.oldest = m.Version
	if p.calls != nil || p.producers != nil {
		return nil
	}
	v, err := p.fetchSnapshot(ctx, s, run, c, m)
	if err != nil {
		return err
	}
	if err := p.useVersion(ctx, v); err != nil || p.folder == nil {
		return err
	}
	return p.folder.Tidy()
}

// fetchSnapshot fetches a published version, as a folder where the sampler has one.
func (p *Sampler) fetchSnapshot(ctx context.Context, s *Run, run *streams.Run, c *Course, m *schemas.Manifest) (consumers.Snapshot, error) {
	if p.folder == nil {
		return s.fetchVersion(ctx, run, c, m)
	}
	source, err := weights.NewLoader(run, s.Config.Weights)
	if err != nil {
		return consumers.Snapshot{}, err
	}
	v, err := p.folder.Land(ctx, source, m, schemas.ContentHash(c.Tokenizer.JSON()))
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
