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
	return s.runRole(ctx, role{name: streams.RoleInference, waits: "weights", reach: (*Run).attachStreams, work: (*Run).serveInference})
}

// OpenAIConfig is how the OpenAI API is served: without stops of its own an answer ends where the agent's turn would.
func (s *Run) OpenAIConfig(c *Course) openai.Config {
	cfg := s.Config.Inference.OpenAI
	if len(cfg.Stop) == 0 {
		cfg.Stop = c.contextFormat().Stop
	}
	return cfg
}

// serveInference is the inference consumer's role.
func (s *Run) serveInference(ctx context.Context, run *streams.Run, c *Course) error {
	cfg := s.Config.Inference
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("inference")
	}
	defer s.keepPresence(ctx, run, "inference", cfg.Name)()
	cfg.OpenAI = s.OpenAIConfig(c)
	loader, err := weights.NewLoader(run, s.Config.Weights)
	if err != nil {
		return err
	}
	metrics, err := consumers.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	sampler, folder, closeFolder, err := s.openSampler(&cfg, c, metrics)
	if err != nil {
		return err
	}
	defer closeFolder()
	defer s.watchWork(ctx, s.inferenceWork(run))()
	group, ctx := errgroup.WithContext(ctx)
	if s.Config.Eval.At == config.EvalAtProducers {
		pinned, closePinned, err := s.newPinned(run, c, metrics)
		if err != nil {
			return err
		}
		defer closePinned()
		group.Go(func() error { return pinned.Serve(ctx, run, cfg.Name) })
	}
	group.Go(func() error {
		return consumers.Run(ctx, cfg, consumers.Deps{
			Run: run.Name(), Stream: consumers.OnRun(run), Weights: loader, Sampler: sampler, Folder: folder,
			Tokenizer: c.Tokenizer, ChatTemplate: c.ChatContext, Chat: c.ChatTemplate(), Metrics: metrics, Log: s.Log,
			Ready: func(err error) { s.health.Set("weights", err) },
		})
	})
	return group.Wait()
}

// newPinned is what samples for evaluation tickets: the versions that they name, beside the newest.
func (s *Run) newPinned(run *streams.Run, c *Course, metrics *consumers.Metrics) (*consumers.Pinned, func(), error) {
	engines, err := s.Config.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	p, closeFolder := &Sampler{}, func() {}
	large, err := s.largeModel(c)
	if err != nil {
		return nil, nil, err
	}
	if large {
		if p.folder, closeFolder, err = s.openVersions(c, filepath.Join(s.Config.Folder(), "pinned")); err != nil {
			return nil, nil, err
		}
	}
	return consumers.NewPinned(consumers.PinnedOptions{
		Make: func() consumers.Sampler {
			return consumers.NewBatcher(scoringConfig(s.Config), engines.NewDecoder, nil)
		},
		Load: func(ctx context.Context, version int64) (consumers.Snapshot, error) {
			m, err := run.Manifest(ctx, version)
			if err != nil {
				return consumers.Snapshot{}, err
			}
			return p.fetchSnapshot(ctx, s, run, c, m)
		},
		Metrics: metrics, Log: s.Log,
	}), closeFolder, nil
}
