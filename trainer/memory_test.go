package trainer

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// BenchmarkSaveAndPublish saves and publishes a model of 25 million weights, and reports the most that the heap held
// beyond the engine, in copies of the model.
func BenchmarkSaveAndPublish(b *testing.B) {
	model := gpu.Config{
		ModelType: "llama", VocabSize: 4096, HiddenSize: 512, IntermediateSize: 1536, NumLayers: 7, NumHeads: 8, NumKVHeads: 8,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64,
	}
	engine, err := native.New(model, native.Options{Seed: 1})
	require.NoError(b, err)
	defer engine.Close()
	run := streamtest.Open(b, streamtest.Conn(b))
	stream, err := OverStreams(run, streams.WeightsConfig{Dir: b.TempDir(), BaseEvery: 1})
	require.NoError(b, err)
	require.NoError(b, stream.Take(b.Context(), nil))
	deps, err := Deps{Engine: engine, Stream: stream, Prompts: prompts{vocab}}.withDefaults()
	require.NoError(b, err)
	cfg := DefaultConfig()
	cfg.Publish.ShardBytes = 4 << 20
	publisher := newPublisher(cfg.Publish, deps, b.TempDir())
	store, err := checkpoint.Open(checkpoint.Config{Dir: b.TempDir(), Keep: 1, Messages: 1})
	require.NoError(b, err)
	defer store.Close()

	defer debug.SetGCPercent(debug.SetGCPercent(5)) // so that the heap is little more than what is alive
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	rest := heap()
	var most atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most.Store(max(most.Load(), heap()))
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	step, bytes := int64(0), 0
	for _, t := range model.Layout() {
		bytes += 4 * t.Elements()
	}
	for b.Loop() {
		c := &checkpoint.Checkpoint{Policy: engine}
		c.State.Step, c.Record.Step, c.State.Run = step, step, stream.Name()
		require.NoError(b, store.Save(b.Context(), c))
		require.NoError(b, publisher.publish(b.Context(), version{number: step, at: time.Unix(step, 0)}))
		step++
	}
	close(stop)
	<-stopped
	b.ReportMetric(float64(most.Load()-rest)/float64(bytes), "copies-peak")
}
