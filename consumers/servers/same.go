package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// HeadKeeper is a [Speaker] of a server that may keep, through a load, the head that it was started with, where the head is the
// embedding.
type HeadKeeper interface {
	// KeepsHead reports whether the server does.
	KeepsHead(ctx context.Context) (bool, error)
}

// refuseKeptHead refuses a server that would sample with the head of the version that it was started with. No checksum shows
// that: the embedding is new, and its copy that the head multiplies by is not.
func (s *server) refuseKeptHead(ctx context.Context, want *consumers.Snapshot) error {
	k, is := s.speaker.(HeadKeeper)
	if !is || !want.Config.TieEmbeddings {
		return nil
	}
	kept := false
	err := limitTime(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) (err error) {
		kept, err = k.KeepsHead(ctx)
		return err
	})
	switch {
	case err != nil:
		// Its log-probabilities show it after the load.
		s.pool.log.Warn("an inference server cannot be asked whether its loads reach the head", "server", s.name, "err", err)
		return nil
	case kept:
		return &SettingError{Setting: "it is a vLLM for processors, whose loads do not reach a head that is the embedding: " +
			"it would sample with the head that it was started with; train a model with a head of its own (model.tie_embeddings: false), " +
			"or sample with inference.engine native or torch, or with vLLM on a GPU"}
	}
	return nil
}

// checkSameModel refuses a server whose model folder can be read here and is another model's.
func checkSameModel(path string, want gpu.Config) error {
	if !filepath.IsAbs(path) {
		return nil
	}
	have, err := hf.ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it lies on another machine, or is gone: the probe and the load find out
	}
	if err != nil {
		return &SettingError{Setting: fmt.Sprintf("it serves another model, %s, which cannot be read: start it with the run's model", path), Err: err}
	}
	var errs []error
	for _, x := range []struct {
		key        string
		have, want int
	}{
		{"vocab_size", have.VocabSize, want.VocabSize},
		{"hidden_size", have.HiddenSize, want.HiddenSize},
		{"num_hidden_layers", have.NumLayers, want.NumLayers},
		{"num_attention_heads", have.NumHeads, want.NumHeads},
	} {
		if x.have != x.want {
			errs = append(errs, fmt.Errorf("%s is %d, the run's model has %d", x.key, x.have, x.want))
		}
	}
	if errs != nil {
		return &SettingError{Setting: fmt.Sprintf("it serves another model, %s: start it with the run's model", path), Err: errors.Join(errs...)}
	}
	return nil
}
