package consumers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

// heavy is a model of 50 million weights: a copy in float32 takes 200 MB.
func heavy() gpu.Config {
	return gpu.Config{
		ModelType: "llama", VocabSize: 8192, HiddenSize: 640, IntermediateSize: 1792, NumLayers: 9, NumHeads: 10, NumKVHeads: 10,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64,
	}
}

// swapped is what a consumer held before the last version came, and at most until that was in use, in bytes.
type swapped struct {
	Rest int64 `json:"rest"`
	Peak int64 `json:"peak"`
}

const swapVar = "WEIR_TEST_SWAP_MEMORY"

// A consumer that takes a version from the broker by way of its files holds little beside its decoder, which has the version in
// use and room for the next: a fifth, and what is on its way over the connection. A copy of the weights would be more.
func TestTakingAVersionTakesLittleBesideTheDecoder(t *testing.T) {
	fulltest.Need(t, "publishes 50 million weights three times")
	if at := os.Getenv(swapVar); at != "" {
		swapAt(t, at)
		return
	}
	b := streamtest.Start(t)
	run := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{URL: b.URL()}))
	home := t.TempDir()
	publishHeavy(t, run, home)
	own := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	own.Env = append(os.Environ(), swapVar+"="+b.URL(), "WEIR_TEST_HOME="+home, "GOMAXPROCS=2")
	out, err := own.CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(filepath.Join(home, "memory.json"))
	require.NoError(t, err)
	var m swapped
	require.NoError(t, json.Unmarshal(data, &m))
	t.Logf("%d MB beside %d MB", (m.Peak-m.Rest)>>20, m.Rest>>20)
	require.Greater(t, m.Rest, int64(2*4*50_000_000), "two versions in float32")
	const underWay = 64 << 20 // what readers ask a broker for at once
	require.LessOrEqual(t, m.Peak, m.Rest+m.Rest/5+underWay)
}

// publishHeavy publishes three versions in float32, whole.
func publishHeavy(t *testing.T, run *streams.Run, home string) {
	t.Helper()
	engine, err := native.New(heavy(), native.Options{Seed: 1})
	require.NoError(t, err)
	defer engine.Close()
	publisher, err := weights.NewPublisher(run, weights.DefaultConfig())
	require.NoError(t, err)
	config, err := json.Marshal(heavy())
	require.NoError(t, err)
	for v := range int64(3) {
		dir := filepath.Join(home, fmt.Sprintf("v%d", v))
		w, err := engine.Weights(t.Context())
		require.NoError(t, err)
		w.Tensors[0].Data[v]++
		enginetest.SetWeights(t, engine, w)
		files, err := engine.Export(t.Context(), dir, gpu.ExportOptions{ShardBytes: 16 << 20})
		require.NoError(t, err)
		written, err := files.Wait(t.Context())
		require.NoError(t, err)
		m := &schemas.Manifest{
			Run: run.Name(), Version: v, Base: schemas.NoBase, DType: "float32", PublishedAt: time.Now(), Config: config,
			ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(nil),
		}
		var paths []string
		for _, f := range gpu.PolicyFiles(written) {
			m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: f.Size})
			paths = append(paths, filepath.Join(dir, f.Name))
		}
		_, err = publisher.PublishFrom(t.Context(), m, weights.FileSource(paths))
		require.NoError(t, err)
	}
}

// swapAt takes the three versions one after another and measures the last.
func swapAt(t *testing.T, broker string) {
	t.Helper()
	home := os.Getenv("WEIR_TEST_HOME")
	run, err := streamtest.Connect(t, streams.ConnectConfig{URL: broker}).Attach(t.Context(), "test")
	require.NoError(t, err)
	loader, err := weights.NewLoader(run, weights.DefaultConfig())
	require.NoError(t, err)
	folder, err := consumers.OpenFolder(filepath.Join(home, "folder"), func(dir string, c gpu.Config, dtype gpu.DType) error {
		_, err := hf.WriteConfig(dir, c, dtype)
		return err
	})
	require.NoError(t, err)
	defer folder.Close()
	cfg := consumers.DefaultConfig()
	cfg.Slots = 1
	batcher := consumers.NewBatcher(cfg, native.Backend{}.NewDecoder, nil)
	running, stop := context.WithCancel(t.Context())
	var work errgroup.Group
	work.Go(func() error { return batcher.Run(running) })
	// That of a process with 2.5 GB of weights and more.
	debug.SetGCPercent(memory.Percent(1 << 40))
	var m swapped
	var watched func() int64
	for v := range int64(3) {
		manifest, err := run.Manifest(t.Context(), v)
		require.NoError(t, err)
		if v == 2 {
			m.Rest = memory.Settle()
			watched = memory.Watch()
		}
		s, err := folder.Land(t.Context(), loader, manifest, "")
		require.NoError(t, err)
		_, err = batcher.Swap(t.Context(), s)
		require.NoError(t, err)
		require.NoError(t, folder.Tidy())
	}
	m.Peak = watched()
	require.EqualValues(t, 2, batcher.Version())
	stop()
	require.NoError(t, work.Wait())
	data, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, "memory.json"), data, 0o600))
}
