package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
)

func (a *app) inferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inference", Short: "Follow the policy's weights and sample from them", Args: cobra.NoArgs,
		Example: "  weir inference --broker.url nats://broker:4222 --inference.openai.listen 127.0.0.1:8000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runRole(cmd, role{
				name: streams.RoleInference, waits: "weights", reach: (*session).attach, work: (*session).infer,
			})
		},
	}
}

// openAI is how the OpenAI API is served: without stops of its own an answer ends where the agent's turn would.
func (s *session) openAI(c *course) openai.Config {
	cfg := s.cfg.Inference.OpenAI
	if len(cfg.Stop) == 0 {
		cfg.Stop = c.format().Stop
	}
	return cfg
}

// infer is the inference consumer's role.
func (s *session) infer(ctx context.Context, run *streams.Run, c *course) error {
	cfg := s.cfg.Inference
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("inference")
	}
	defer s.present(ctx, run, "inference", cfg.Name)()
	cfg.OpenAI = s.openAI(c)
	weights, err := run.Weights(s.cfg.Weights)
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
	if s.cfg.Eval.At == config.EvalAtProducers {
		pinned, closePinned, err := s.newPinned(run, c, metrics)
		if err != nil {
			return err
		}
		defer closePinned()
		group.Go(func() error { return pinned.Serve(ctx, run, cfg.Name) })
	}
	group.Go(func() error {
		return consumers.Run(ctx, cfg, consumers.Deps{
			Run: run.Name(), Stream: consumers.OnRun(run), Weights: weights, Sampler: sampler, Folder: folder,
			Tokenizer: c.tokenizer, ChatTemplate: c.chat, Chat: c.template(), Metrics: metrics, Log: s.log,
			Ready: func(err error) { s.health.Set("weights", err) },
		})
	})
	return group.Wait()
}

// newPinned is what samples for evaluation tickets: the versions that they name, beside the newest.
func (s *session) newPinned(run *streams.Run, c *course, metrics *consumers.Metrics) (*consumers.Pinned, func(), error) {
	engines, err := s.cfg.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	p, closeFolder := &sampler{}, func() {}
	large, err := s.largeModel(c)
	if err != nil {
		return nil, nil, err
	}
	if large {
		if p.folder, closeFolder, err = s.openVersions(c, filepath.Join(s.cfg.Folder(), "pinned")); err != nil {
			return nil, nil, err
		}
	}
	return consumers.NewPinned(consumers.PinnedOptions{
		Make: func() consumers.Sampler { return consumers.NewBatcher(scoring(s.cfg), engines.NewDecoder, nil) },
		Load: func(ctx context.Context, version int64) (consumers.Snapshot, error) {
			m, err := run.Manifest(ctx, version)
			if err != nil {
				return consumers.Snapshot{}, err
			}
			return p.snapshot(ctx, s, run, c, m)
		},
		Metrics: metrics, Log: s.log,
	}), closeFolder, nil
}
