package consumers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

// counting is a Sampler of somebody else: it has no decoder and no batches, and says the number after the last one.
type counting struct {
	mu      sync.Mutex
	version int64
	step    int32 // from one token to the next, as the weights say
	calls   int
	changed chan struct{} // closed when the version changes
}

func newCounting() *counting { return &counting{version: -1, changed: make(chan struct{})} }

func (*counting) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *counting) Swap(_ context.Context, s consumers.Snapshot) (consumers.Swapped, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	step := int32(s.Weights.Tensors[0].Data[0])
	if step <= 0 {
		return consumers.Swapped{}, fmt.Errorf("%w: it does not count up", consumers.ErrBadWeights)
	}
	c.version, c.step = s.Version, step
	close(c.changed)
	c.changed = make(chan struct{})
	return consumers.Swapped{}, nil
}

func (c *counting) Version() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

func (c *counting) Load() consumers.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	return consumers.Load{Running: c.calls}
}

// wait waits for a version that is new enough.
func (c *counting) wait(ctx context.Context, version int64) (in int64, step int32, err error) {
	for {
		c.mu.Lock()
		in, step, changed := c.version, c.step, c.changed
		c.mu.Unlock()
		if in >= version {
			return in, step, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

func (c *counting) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	version, step, err := c.wait(ctx, req.MinVersion)
	if err != nil {
		return err
	}
	last := req.Tokens[len(req.Tokens)-1]
	for i := range req.MaxTokens {
		last += step
		chunk := &schemas.GenerateChunk{
			Tokens: []int32{last}, Logprobs: []float32{0}, Versions: []int32{int32(version)},
			Done: i == req.MaxTokens-1, Stop: schemas.GenerateLength,
		}
		if !chunk.Done {
			chunk.Stop = ""
		}
		if err := emit(chunk); err != nil {
			return err
		}
	}
	return nil
}

// A Sampler that was written outside serves a run over a broker: it follows published weights and answers producers' calls.
func TestASamplerOfSomebodyElseServesARun(t *testing.T) {
	t.Parallel()
	run := streamtest.Open(t, streamtest.Conn(t))
	publisher, err := weights.NewPublisher(run, weights.DefaultConfig())
	require.NoError(t, err)
	loader, err := weights.NewLoader(run, weights.DefaultConfig())
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	metrics, err := consumers.NewMetrics(registry)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan error, 2), make(chan error, 1)
	cfg := consumers.DefaultConfig()
	cfg.Name = "counting"
	sampler := newCounting()
	go func() {
		done <- consumers.Run(ctx, cfg, consumers.Deps{
			Run: "test", Stream: consumers.OnRun(run), Weights: loader, Sampler: sampler, Metrics: metrics,
			Ready: func(err error) { ready <- err },
		})
	}()
	publishStep(t, publisher, 0, 1)
	require.NoError(t, <-ready)

	client := generate.NewClient(run, generate.ClientOptions{})
	defer client.Close()
	ask := func(minVersion int64) *generate.Result {
		got, err := client.Generate(t.Context(), &schemas.GenerateRequest{
			Run: "test", Episode: "e", Tokens: []int32{7}, MaxTokens: 3, Temperature: 1, MinVersion: minVersion,
		})
		require.NoError(t, err)
		require.Equal(t, "counting", got.Engine)
		return got
	}
	require.Equal(t, []int32{8, 9, 10}, ask(0).Tokens)
	publishStep(t, publisher, 1, -4) // refused: the version in use stays
	publishStep(t, publisher, 2, 10)
	got := ask(2)
	require.Equal(t, []int32{17, 27, 37}, got.Tokens)
	require.Equal(t, []int32{2, 2, 2}, got.Versions)

	cancel()
	require.NoError(t, <-done)
	require.EqualError(t, <-ready, "draining")
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "weir_inference_tokens_total" {
			require.InDelta(t, 6, f.GetMetric()[0].GetCounter().GetValue(), 0)
		}
	}
}

// publishStep publishes a version whose one number is the step.
func publishStep(t *testing.T, publisher *weights.Publisher, version int64, step float32) {
	t.Helper()
	data, err := safetensors.Encode(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "step", Shape: []int{1}, Data: []float32{step}}}}, safetensors.F32)
	require.NoError(t, err)
	config, err := json.Marshal(gpu.Config{
		ModelType: "llama", VocabSize: 100, HiddenSize: 2, IntermediateSize: 2, NumLayers: 1, NumHeads: 1, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 16,
	})
	require.NoError(t, err)
	hash := schemas.ContentHash(data)
	err = publisher.Publish(t.Context(), &schemas.Manifest{
		Run: "test", Version: version, Base: schemas.NoBase, DType: "float32", Config: config, ConfigHash: schemas.ContentHash(config),
		TokenizerHash: schemas.ContentHash(nil),
		Shards:        []schemas.Shard{{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}},
	}, map[string][]byte{hash: data})
	require.NoError(t, err)
}
