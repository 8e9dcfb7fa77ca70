package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

// openModel is a model folder that is sampled from, without a run.
type openModel struct {
	config  gpu.Config
	codec   tokenizer.Codec
	chat    *chat.Chat // nil where the folder has no template
	stops   []int32    // they end an answer
	batcher *consumers.Batcher
	close   func()
}

// openModel loads a folder into a sampler, which outlives ctx and ends with close. The end of ctx ends the loading at once.
func (s *session) openModel(ctx context.Context, dir string) (*openModel, error) {
	m := &openModel{}
	if err := m.read(dir); err != nil {
		return nil, err
	}
	backend, err := s.cfg.Backend()
	if err != nil {
		return nil, err
	}
	cfg := s.cfg.Inference
	if estimator, ok := backend.(gpu.MemoryEstimator); ok {
		one := min(m.config.MaxPositions, evaluatedTokens)
		need := estimator.DecodingMemory(m.config, gpu.DecoderOptions{Slots: 1, MaxTokens: one, DType: gpu.BFloat16}, int64(one), false)
		s.log.Info("what this needs of memory for one sequence", "bytes", need.Total(), "parts", need.Text())
		if err := s.holds(backend, need, func() string { return "Take a smaller model or a larger machine" }); err != nil {
			return nil, err
		}
	}
	m.batcher = consumers.NewBatcher(cfg, backend.NewDecoder, nil)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return m.batcher.Run(life) })
	m.close = func() {
		stop()
		_ = group.Wait() // its work is done
	}
	err = promptly(ctx, func() error {
		_, err := m.batcher.Swap(ctx, consumers.Snapshot{Config: m.config, Dir: dir})
		return err
	})
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// promptly does what knows no context, such as reading the weights of a model, and leaves it to itself when ctx ends.
func promptly(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read opens all but the weights' numbers.
func (m *openModel) read(dir string) error {
	folder, err := hf.Open(dir)
	if err != nil {
		return err
	}
	m.config = folder.Config
	m.stops, err = folder.StopTokens()
	if err := errors.Join(err, folder.Close()); err != nil {
		return err
	}
	if m.codec, err = tokenizer.OpenFolder(dir); err != nil {
		return err
	}
	if size := m.codec.Size(); size > m.config.VocabSize {
		return fmt.Errorf("%s: tokenizer.json has %d ids, config.json's vocab_size is %d: take both from the same place", dir, size, m.config.VocabSize)
	}
	m.chat, err = chat.Open(dir, m.codec, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, id := range m.chat.Stop() {
		if !slices.Contains(m.stops, id) {
			m.stops = append(m.stops, id)
		}
	}
	return nil
}
