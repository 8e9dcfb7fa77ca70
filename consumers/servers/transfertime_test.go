package servers_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

// largerModel has some 80 million parameters.
func largerModel() gpu.Config {
	return gpu.Config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: 16000, HiddenSize: 768, IntermediateSize: 2048, NumLayers: 8,
		NumHeads: 12, NumKVHeads: 12, HeadDim: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 256, DType: "float32",
	}
}

// How long a version of 320 MB takes from its bytes to its use, and how long the server stands still for it: as a folder on disk and through
// shared memory, in turn. The times are shown and none is asserted; what is asserted is that both serve.
func TestTimesOfAVersionAsAFolderAndThroughSharedMemory(t *testing.T) {
	fulltest.Need(t, "a model of 80 million parameters")
	program := realpython.VLLM(t)
	setRealEnv(t)
	e, err := native.New(largerModel(), native.Options{Seed: 1, Threads: 2, Init: native.Init{EmbeddingStd: 0.02}})
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	disk, memory := t.TempDir(), memoryDir(t)
	first := filepath.Join(disk, "first")
	require.NoError(t, hf.Save(first, largerModel(), w, nil, safetensors.F32))
	bytes, err := os.ReadFile(filepath.Join(first, gpu.WeightsFile))
	require.NoError(t, err)
	d := newDirector(t, vllm.Kind{}, startReal(t, program, first, "--max-model-len", "256"))
	require.NoError(t, d.staging.BeginTransfers(t.Context()))

	ctx, stop := context.WithCancel(t.Context())
	var calls errgroup.Group
	calls.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			_, err := d.speaker.Generate(ctx, &servers.Query{ID: "load", Salt: "load", Tokens: []int32{1, 2, 3}, MaxTokens: 100, Temperature: 1}, func() {})
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	total, still := map[bool][]time.Duration{}, map[bool][]time.Duration{}
	for i := range 16 {
		inMemory := i%2 == 1
		dir := filepath.Join(map[bool]string{true: memory, false: disk}[inMemory], "version")
		require.NoError(t, os.RemoveAll(dir))
		began := time.Now()
		require.NoError(t, os.MkdirAll(dir, 0o755))
		config, err := os.ReadFile(filepath.Join(first, "config.json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, gpu.WeightsFile), bytes, 0o644))
		if inMemory {
			require.NoError(t, d.stage("version", dir, stagedFiles(t, dir)))
		}
		paused := time.Now()
		d.paused(func() {
			if inMemory {
				require.NoError(t, d.staging.LoadStaged(t.Context(), dir, "version", servers.Keep))
			} else {
				require.NoError(t, d.speaker.Load(t.Context(), dir, "version", servers.Keep))
			}
		})
		total[inMemory], still[inMemory] = append(total[inMemory], time.Since(began)), append(still[inMemory], time.Since(paused))
	}
	stop()
	require.NoError(t, calls.Wait())
	for _, inMemory := range []bool{false, true} {
		t.Logf("in memory %t: %v to use, %v of it stands still (medians of %d)", inMemory, median(total[inMemory]), median(still[inMemory]), len(total[inMemory]))
	}
}

func median(d []time.Duration) time.Duration {
	slices.SortFunc(d, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	return d[len(d)/2].Round(time.Millisecond)
}
