package consumers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

type nothing struct {
	next    gpu.Slot
	free    []gpu.Slot
	results []gpu.Sampled
}

func (d *nothing) Config() gpu.Config { return fakeConfig() }
func (d *nothing) Open() (gpu.Slot, error) {
	if n := len(d.free); n > 0 {
		s := d.free[n-1]
		d.free = d.free[:n-1]
		return s, nil
	}
	d.next++
	return d.next, nil
}
func (d *nothing) Close(s gpu.Slot)                     { d.free = append(d.free, s) }
func (d *nothing) Truncate(gpu.Slot, int)               {}
func (d *nothing) Prepare(*gpu.Weights) (func(), error) { return func() {}, nil }
func (d *nothing) Extend(_ context.Context, in []gpu.Extension) ([]gpu.Sampled, error) {
	return d.results[:len(in)], nil
}

func BenchmarkStep(b *testing.B) {
	dec := &nothing{results: make([]gpu.Sampled, 64)}
	cfg := DefaultConfig()
	model := fakeConfig()
	model.VocabSize, model.MaxPositions = 16, 1<<30
	e := NewBatcher(cfg, func(gpu.Config, *gpu.Weights, gpu.DecoderOptions) (gpu.Decoder, error) { return dec, nil },
		nil)
	sw, err := e.prepareSwap(b.Context(), Snapshot{Config: model, Weights: fakeWeights(0)})
	require.NoError(b, err)
	e.enqueueSwap(sw)
	step := func() {
		_, err := e.runStep(b.Context())
		require.NoError(b, err)
	}
	step()
	req := &schemas.GenerateRequest{Tokens: []int32{1, 2, 3}, MaxTokens: 256, Temperature: 1}
	calls := make([]*call, 64)
	b.ReportAllocs()
	var steps int
	for b.Loop() {
		for i, c := range calls {
			if c == nil || c.takeChunk().Done {
				calls[i], _ = e.submitCall(b.Context(), req)
			}
		}
		step()
		steps++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*steps), "ns/token")
}
