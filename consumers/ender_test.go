package consumers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
)

// endingDecoder holds something outside, and reads folders.
type endingDecoder struct {
	gpu.Decoder
	ended   *atomic.Int32
	folders []string
	err     error
	used    []string
	// starts, where there is one, is closed by Start, which then goes on until its context ends.
	starts chan struct{}
	dir    string
}

func (d *endingDecoder) End() { d.ended.Add(1) }

func (d *endingDecoder) Start(ctx context.Context) error {
	if d.starts == nil {
		return nil
	}
	close(d.starts)
	<-ctx.Done()
	return context.Cause(ctx)
}

func (d *endingDecoder) PrepareFolder(_ context.Context, dir string) (func(), error) {
	if d.err != nil {
		return nil, d.err
	}
	d.folders = append(d.folders, dir)
	return func() { d.used = append(d.used, dir) }, nil
}

func TestADecoderIsEndedWithItsBatcher(t *testing.T) {
	t.Parallel()
	var ended atomic.Int32
	dec := &endingDecoder{ended: &ended}
	cfg := DefaultConfig()
	b := NewBatcher(cfg, func(c gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
		inner, err := native.NewDecoder(c, w, o, 1)
		dec.Decoder = inner
		return dec, err
	}, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	first := nativeSnapshot(t, 0)
	_, err := b.Swap(ctx, first)
	require.NoError(t, err)

	// The decoder reads the next version itself.
	next := Snapshot{Version: 1, Config: first.Config, Dir: "v1"}
	_, err = b.Swap(ctx, next)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.Version())
	require.Equal(t, []string{"v1"}, dec.used)

	// A folder at fault is refused for good, a decoder that was lost is tried again.
	next.Version = 2
	dec.err = errors.New("a tensor is missing")
	_, err = b.Swap(ctx, next)
	require.ErrorIs(t, err, ErrBadWeights)
	dec.err = gpu.ErrLost
	_, err = b.Swap(ctx, next)
	require.ErrorIs(t, err, gpu.ErrLost)
	require.NotErrorIs(t, err, ErrBadWeights)
	dec.err = nil
	next.Config.VocabSize++
	_, err = b.Swap(ctx, next)
	require.ErrorIs(t, err, ErrBadWeights)
	require.EqualValues(t, 1, b.Version())

	require.Zero(t, ended.Load())
	stop()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, ended.Load())
}

// A decoder that starts is given up with the context of its Swap, and told of the folder that its weights lie in.
func TestADecoderThatStartsIsGivenUpWithItsSwap(t *testing.T) {
	t.Parallel()
	var ended atomic.Int32
	dec := &endingDecoder{ended: &ended, starts: make(chan struct{})}
	first := nativeSnapshot(t, 0)
	b := NewBatcher(DefaultConfig(), func(c gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
		inner, err := native.NewDecoder(c, w, o, 1)
		dec.Decoder, dec.dir = inner, o.Dir
		return dec, err
	}, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	dir := t.TempDir()
	_, err := hf.Export(t.Context(), dir, first.Config, first.Weights.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	swapping, giveUp := context.WithCancel(ctx)
	go func() {
		<-dec.starts
		giveUp()
	}()
	_, err = b.Swap(swapping, Snapshot{Version: 0, Config: first.Config, Dir: dir})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, dir, dec.dir)
	require.EqualValues(t, -1, b.Version())
	stop()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, ended.Load())
}
