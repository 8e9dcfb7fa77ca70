package assembly

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

// OpenModel is a model folder that is sampled from, without a run.
type OpenModel struct {
	config  gpu.Config
	Codec   tokenizer.Codec
	Chat    *chat.Chat // nil where the folder has no template
	Stops   []int32    // they end an answer
	Batcher *consumers.Batcher
	Close   func()
}

// OpenFolder loads a folder into a sampler, which outlives ctx and ends with close. The end of ctx ends the loading at once.
func (l *Models) OpenFolder(ctx context.Context, dir string) (*OpenModel, error) {
	m := &OpenModel{}
	if err := m.readFolder(dir); err != nil {
		return nil, err
	}
	backend, err := l.cfg.Backend()
	if err != nil {
		return nil, err
	}
	cfg := l.cfg.Inference
	if estimator, ok := backend.(gpu.MemoryEstimator); ok {
		one := min(m.config.MaxPositions, evaluatedTokens)
		need := estimator.DecodingMemory(m.config, gpu.DecoderOptions{Slots: 1, MaxTokens: one, DType: gpu.BFloat16}, int64(one), false)
		l.log.Info("what this needs of memory for one sequence", "bytes", need.Total(), "parts", need.Text())
		if err := fitsMemory(l.memory, backend, need, func() string { return "Take a smaller model or a larger machine" }); err != nil {
			return nil, err
		}
	}
	m.Batcher = consumers.NewBatcher(cfg, backend.NewDecoder, nil)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return m.Batcher.Run(life) })
	m.Close = func() {
		stop()
		_ = group.Wait() // its work is done
	}
	err = doPromptly(ctx, func() error {
		_, err := m.Batcher.Swap(ctx, consumers.Snapshot{Config: m.config, Dir: dir})
		return err
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// doPromptly calls a function that takes no context, such as reading the weights of a model, and returns before it when ctx ends.
func doPromptly(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readFolder opens all but the weights' numbers.
func (m *OpenModel) readFolder(dir string) error {
	folder, err := hf.Open(dir)
	if err != nil {
		return err
	}
	m.config = folder.Config
	m.Stops, err = folder.StopTokens()
	if err := errors.Join(err, folder.Close()); err != nil {
		return err
	}
	if m.Codec, err = tokenizer.OpenFolder(dir); err != nil {
		return err
	}
	if size := m.Codec.Size(); size > m.config.VocabSize {
		return fmt.Errorf("%s: tokenizer.json has %d ids, config.json's vocab_size is %d: take both from the same place", dir, size, m.config.VocabSize)
	}
	m.Chat, err = chat.Open(dir, m.Codec, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, id := range m.Chat.Stop() {
		if !slices.Contains(m.Stops, id) {
			m.Stops = append(m.Stops, id)
		}
	}
	return nil
}

// OpenEvaluator opens an engine with a folder's weights that only evaluates.
func (l *Models) OpenEvaluator(ctx context.Context, dir string) (gpu.Engine, error) {
	folder, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	model := folder.Config
	model.ValueHead = false
	if err := folder.Close(); err != nil {
		return nil, err
	}
	backend, err := l.cfg.Backend()
	if err != nil {
		return nil, err
	}
	if estimator, ok := backend.(gpu.MemoryEstimator); ok {
		need := estimator.EvaluatingMemory(model, evaluatedTokens)
		if err := fitsMemory(l.memory, backend, need, func() string { return "Take a smaller model or a larger machine" }); err != nil {
			return nil, err
		}
	}
	e, err := backend.New(model)
	if err != nil {
		return nil, err
	}
	if err := e.Import(ctx, dir); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// evaluatedTokens is how long a text is that memory is counted for.
const evaluatedTokens = 2048
