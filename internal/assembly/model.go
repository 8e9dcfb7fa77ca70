package assembly

import (
	"bytes"
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/trainer/learner"
)

// newEngine makes the policy: from the model folder where it is named, else with fresh weights from the run's seed. It has a value head
// where that is the critic.
func newEngine(ctx context.Context, cfg *config.Config, c *Course) (gpu.Engine, error) {
	model, head := cfg.Model.Config(c.Tokenizer.Size()), cfg.Trainer.Critic.Network == learner.CriticHead
	model.ValueHead = head
	if cfg.Model.Folder == "" {
		return emptyEngine(cfg.Backend, model)
	}
	folder, err := hf.Open(cfg.Model.Folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }() // read only
	file, err := folder.Tokenizer()
	if err != nil {
		return nil, err
	}
	if !sameTokenizer(file, c.Tokenizer) {
		return nil, fmt.Errorf("model.folder: %s has another tokenizer than task %s", cfg.Model.Folder, c.Names())
	}
	model = folder.Config
	model.ValueHead = head
	engine, err := emptyEngine(cfg.Backend, model)
	if err != nil {
		return nil, err
	}
	return engine, engine.Import(ctx, cfg.Model.Folder)
}

// modelFiles are the files of the model folder beside its weights; nil without a folder.
func modelFiles(cfg *config.Config) (*hf.Files, error) {
	if cfg.Model.Folder == "" {
		return nil, nil
	}
	return hf.OpenFiles(cfg.Model.Folder)
}

// sameTokenizer reports whether a folder's tokenizer.json is a tokenizer's, however it is laid out.
func sameTokenizer(file []byte, tok tasks.Tokenizer) bool {
	if bytes.Equal(file, tok.JSON()) {
		return true
	}
	read, err := tokenizer.Read(file)
	return err == nil && bytes.Equal(read.JSON(), tok.JSON())
}

// emptyEngine makes an engine of a given shape with starting weights from the run's seed.
func emptyEngine(backend func() (gpu.Backend, error), model gpu.Config) (gpu.Engine, error) {
	b, err := backend()
	if err != nil {
		return nil, err
	}
	return b.New(model)
}

// weightBytes is the size of a model's weights in float32.
func weightBytes(c gpu.Config) (n int64) {
	for _, t := range c.Layout() {
		n += 4 * int64(t.Elements())
	}
	return n
}
