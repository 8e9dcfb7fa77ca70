package consumers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// endingDecoder holds something outside, and reads folders.
type endingDecoder struct {
	gpu.Decoder
	ended   *atomic.Int32
	folders []string
	err     error
	used    []string
}

func (d *endingDecoder) End() { d.ended.Add(1) }

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
