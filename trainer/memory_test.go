package trainer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// taken is the memory of a process that trains, at rest and at most in each part of what follows a step, in bytes.
type taken struct {
	Rest  int64            `json:"rest"`
	Peaks map[string]int64 `json:"peaks"`
}

// measureVar tells a process of the test's own binary to measure, at which broker, and where to write what it found.
const measureVar = "WEIR_TEST_MEMORY"

// Beside an engine of 25 million weights with gradient and moments, no part of a version's way out of the trainer and back
// from a checkpoint takes more than a fifth of the engine. A whole copy of the weights in float32 would be just that; what
// there is are buffers, which do not grow with the model: two files are compared at a time.
func TestSavingPublishingAndRestoringTakeLittleBesideTheEngine(t *testing.T) {
	fulltest.Need(t, "trains 25 million weights")
	if at := os.Getenv(measureVar); at != "" {
		measure(t, at)
		return
	}
	broker := streamtest.Start(t)
	streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{URL: broker.URL()}))
	home := t.TempDir()
	own := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	own.Env = append(os.Environ(), measureVar+"="+broker.URL(), "WEIR_TEST_HOME="+home, "GOMAXPROCS=2")
	out, err := own.CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(filepath.Join(home, "memory.json"))
	require.NoError(t, err)
	var m taken
	require.NoError(t, json.Unmarshal(data, &m))
	require.Greater(t, m.Rest, int64(5*4*25_000_000), "the engine has weights twice, gradient and moments")
	require.Len(t, m.Peaks, 4)
	for part, peak := range m.Peaks {
		t.Logf("%-8s %4d MB beside %d MB: %.3f of the engine", part, (peak-m.Rest)>>20, m.Rest>>20, float64(peak)/float64(m.Rest))
		require.LessOrEqual(t, peak, m.Rest+m.Rest/5, part)
	}
}

func measure(t *testing.T, broker string) {
	t.Helper()
	home := os.Getenv("WEIR_TEST_HOME")
	model := gpu.Config{
		ModelType: "llama", VocabSize: 4096, HiddenSize: 512, IntermediateSize: 1536, NumLayers: 7, NumHeads: 8, NumKVHeads: 8,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64,
	}
	engine, err := native.New(model, native.Options{Seed: 1})
	require.NoError(t, err)
	defer engine.Close()
	run, err := streamtest.Connect(t, streams.ConnectConfig{URL: broker}).Attach(t.Context(), "test")
	require.NoError(t, err)
	stream, err := OverStreams(run, weights.Config{BaseEvery: 8})
	require.NoError(t, err)
	require.NoError(t, stream.Take(t.Context(), nil))
	deps, err := Deps{Engine: engine, Stream: stream, Prompts: prompts{vocab}}.withDefaults()
	require.NoError(t, err)
	cfg := DefaultConfig()
	cfg.Publish.DType = "bfloat16"
	publisher := newPublisher(cfg.Publish, deps, filepath.Join(home, "versions"))
	store, err := checkpoint.Open(checkpoint.Config{Dir: filepath.Join(home, "checkpoints"), Keep: 1, Messages: 1})
	require.NoError(t, err)
	defer store.Close()

	step := func() {
		err := engine.Accumulate(t.Context(), []*gpu.Batch{{Tokens: []int32{1, 2, 3}, Offsets: []int{0, 3}, Mask: []uint8{0, 1, 1}}},
			func(int, *gpu.Outputs) (*gpu.Gradients, error) {
				return &gpu.Gradients{Logprobs: []float32{0, 1, 1}}, nil
			})
		require.NoError(t, err)
		o := gpu.StepOptions{LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
		_, err = engine.Step(t.Context(), o)
		require.NoError(t, err)
	}
	step()
	// That of a process with 2.5 GB of weights and more.
	debug.SetGCPercent(memory.Percent(1 << 40))
	m := taken{Rest: memory.Settle(), Peaks: map[string]int64{}}
	during := func(part string, do func() error) {
		memory.Settle()
		stop := memory.Watch()
		err := do()
		m.Peaks[part] = stop()
		require.NoError(t, err, part)
	}
	publish := func(n int64) error {
		return publisher.publishVersion(t.Context(), version{number: n, at: time.Unix(n, 0)})
	}
	c := &checkpoint.Checkpoint{Policy: engine}
	c.State.Run = stream.Name()
	during("save", func() error { return store.Save(t.Context(), c) })
	during("whole", func() error { return publish(0) })
	step()
	during("delta", func() error { return publish(1) })
	latest, err := run.LatestManifest(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 0, latest.Base, "the second version went as a delta")
	during("restore", func() error {
		c, _, err := store.Load()
		if err != nil {
			return err
		}
		if err := engine.Import(t.Context(), c.Dir); err != nil {
			return err
		}
		return engine.LoadOptimizer(t.Context(), c.Dir, c.State.OptimizerSteps)
	})
	data, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, "memory.json"), data, 0o600))
}
