package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/trainer"
)

// newEngine makes the policy: the model folder's when one is named, else fresh weights from the run's seed. It has a value
// head where that is the critic.
func newEngine(ctx context.Context, cfg *config.Config, t *task) (gpu.Engine, error) {
	model, head := cfg.Model.Config(t.tokenizer.Size()), cfg.Trainer.Critic.Network == trainer.CriticHead
	model.ValueHead = head
	if cfg.Model.Folder == "" {
		return emptyEngine(cfg, model)
	}
	folder, err := hf.Load(cfg.Model.Folder)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(folder.Tokenizer, t.tokenizer.JSON()) {
		return nil, fmt.Errorf("model.folder: %s has another tokenizer than task %s", cfg.Model.Folder, cfg.Task.Name)
	}
	model, weights := gpu.WithValueHead(folder.Config, folder.Weights, head)
	engine, err := emptyEngine(cfg, model)
	if err != nil {
		return nil, err
	}
	return engine, engine.SetWeights(ctx, weights)
}

// emptyEngine makes an engine of a given shape with starting weights from the run's seed.
func emptyEngine(cfg *config.Config, model gpu.Config) (gpu.Engine, error) {
	return native.New(model, native.Options{
		Seed: cfg.Run.Seed, Threads: cfg.Run.Threads,
		Init: native.Init{EmbeddingStd: cfg.Model.EmbeddingStd, OutputFromValue: cfg.Model.OutputFromValue},
	})
}

// newDecoder makes what an inference consumer samples with, for the model that a manifest describes.
func newDecoder(cfg *config.Config) func(gpu.Config, gpu.DecoderOptions) (gpu.Decoder, error) {
	return func(model gpu.Config, o gpu.DecoderOptions) (gpu.Decoder, error) {
		engine, err := emptyEngine(cfg, model)
		if err != nil {
			return nil, err
		}
		return engine.NewDecoder(o)
	}
}
