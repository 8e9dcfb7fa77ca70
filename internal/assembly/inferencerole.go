package assembly

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// Inference is the inference consumer's role as a process of its own.
func (s *Run) Inference(ctx context.Context) error {
	return s.runRole(ctx, role{
		name: streams.RoleInference, waits: "weights", reach: (*Connector).attachStreams,
		work: func(ctx context.Context, run *streams.Run, c *Course) error {
			return newInferenceRole(s.newProcess(), run, c).serveInference(ctx)
		},
	})
}

// OpenAIConfig is how the OpenAI API is served: without stops of its own an answer ends where the agent's turn would.
func OpenAIConfig(cfg *config.Config, c *Course) openai.Config {
	own := cfg.Inference.OpenAI
	if len(own.Stop) == 0 {
		own.Stop = c.contextFormat().Stop
	}
	return own
}

// inferenceRole is the inference consumer at work.
type inferenceRole struct {
	process
	run    *streams.Run
	course *Course
	own    consumers.Config // with the worker's name
	opener samplerOpener
}

// newInferenceRole makes the role of a run that is open.
func newInferenceRole(p process, run *streams.Run, c *Course) *inferenceRole {
	own := p.cfg.Inference
	if own.Name == "" {
		own.Name = streams.WorkerName("inference")
	}
	own.OpenAI = OpenAIConfig(p.cfg, c)
	return &inferenceRole{process: p, run: run, course: c, own: own, opener: samplerOpener{p.cfg, c, p.log}}
}

// serveInference follows the run's versions and answers generate calls until ctx ends.
func (p *inferenceRole) serveInference(ctx context.Context) error {
	defer p.keepPresence(ctx, p.run, "inference", p.own.Name)()
	loader, err := weights.NewLoader(p.run, p.cfg.Weights)
	if err != nil {
		return err
	}
	metrics, err := consumers.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	sampler, folder, closeFolder, err := p.opener.openSampler(&p.own, metrics)
	if err != nil {
		return err
	}
	defer closeFolder()
	defer p.watchWork(ctx, p.inferenceWork())()
	group, ctx := errgroup.WithContext(ctx)
	if p.cfg.Eval.At == config.EvalAtProducers {
		pinned, closePinned, err := p.newPinned(metrics)
		if err != nil {
			return err
		}
		defer closePinned()
		group.Go(func() error { return pinned.Serve(ctx, p.run, p.own.Name) })
	}
	group.Go(func() error {
		return consumers.Run(ctx, p.own, consumers.Deps{
			Run: p.run.Name(), Stream: consumers.OnRun(p.run), Weights: loader, Sampler: sampler, Folder: folder,
			Tokenizer: p.course.Tokenizer, ChatTemplate: p.course.ChatContext, Chat: p.course.ChatTemplate(), Metrics: metrics, Log: p.log,
			Ready: func(err error) { p.health.Set("weights", err) },
		})
	})
	return group.Wait()
}

// newPinned makes the samplers of evaluation tickets: the versions that they name, beside the newest.
func (p *inferenceRole) newPinned(metrics *consumers.Metrics) (*consumers.Pinned, func(), error) {
	engines, err := p.cfg.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	from, closeFolder := versionSource{p.run, p.course, p.cfg.Weights, nil}, func() {}
	large, err := p.opener.largeModel()
	if err != nil {
		return nil, nil, err
	}
	if large {
		if from.folder, closeFolder, err = p.opener.openVersions(filepath.Join(p.cfg.Folder(), "pinned")); err != nil {
			return nil, nil, err
		}
	}
	return consumers.NewPinned(consumers.PinnedOptions{
		Make: func() consumers.Sampler {
			return consumers.NewBatcher(scoringConfig(p.cfg), engines.NewDecoder, nil)
		},
		Load: func(ctx context.Context, version int64) (consumers.Snapshot, error) {
			m, err := p.run.Manifest(ctx, version)
			if err != nil {
				return consumers.Snapshot{}, err
			}
			return from.fetchVersion(ctx, m)
		},
		Metrics: metrics, Log: p.log,
	}), closeFolder, nil
}
