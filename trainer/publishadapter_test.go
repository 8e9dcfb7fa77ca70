package trainer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

// adapting is an engine with adapters on weights that are bfloat16, as a published model's are.
func adapting(t *testing.T) *native.Engine {
	t.Helper()
	cfg := gpu.Config{
		ModelType: "qwen2", VocabSize: 80, HiddenSize: 64, IntermediateSize: 96, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64, QKVBias: true, ValueHead: true,
	}
	lora := native.DefaultLoRA()
	lora.Rank, lora.Alpha = 2, 16
	e, err := native.New(cfg, native.Options{Seed: 3, LoRA: lora})
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	halve(w)
	enginetest.SetWeights(t, e, w)
	trainOnce(t, e, 0.01)
	return e
}

func halve(w *gpu.Weights) {
	for _, x := range w.Tensors {
		for i := range x.Data {
			x.Data[i] = safetensors.RoundBF16(x.Data[i])
		}
	}
}

func trainOnce(t *testing.T, e gpu.Engine, rate float64) {
	t.Helper()
	b := &gpu.Batch{Tokens: []int32{1, 5, 9, 30, 2, 17}, Offsets: []int{0, 6}, Mask: []uint8{0, 1, 1, 1, 1, 1}}
	require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		return &gpu.Gradients{Logprobs: []float32{0, -1, 1, -1, 1, -1}, Values: []float32{0, 1, 1, 1, 1, 1}}, nil
	}))
	_, err := e.Step(t.Context(), gpu.StepOptions{LearningRate: rate, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8})
	require.NoError(t, err)
}

// wholeFiles are the files of the engine's own merged export, as a version of merged weights has them.
func wholeFiles(t *testing.T, e gpu.Engine, cfg Publish) (out [][]byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "whole")
	pending, err := e.Export(t.Context(), dir, gpu.ExportOptions{DType: gpu.DType(cfg.DType), ShardBytes: cfg.ShardBytes})
	require.NoError(t, err)
	files, err := pending.Wait(t.Context())
	require.NoError(t, err)
	for _, f := range gpu.PolicyFiles(files) {
		data, err := os.ReadFile(filepath.Join(dir, f.Name))
		require.NoError(t, err)
		out = append(out, data)
	}
	return out
}

// readersGet has a reader take a version as a folder and in memory, and compares both with the trainer's own merged export.
func readersGet(t *testing.T, run *streams.Run, cfg weights.Config, m *schemas.Manifest, folder *consumers.Folder, want [][]byte) {
	t.Helper()
	loader, err := weights.NewLoader(run, cfg)
	require.NoError(t, err)
	landed, err := folder.Land(t.Context(), loader, m, "")
	require.NoError(t, err)
	model, err := hf.Open(landed.Dir)
	require.NoError(t, err)
	defer model.Close()
	var files [][]byte
	for _, name := range model.Files() {
		data, err := os.ReadFile(filepath.Join(landed.Dir, name))
		require.NoError(t, err)
		files = append(files, data)
	}
	require.Equal(t, len(want), len(files), "version %d", m.Version) //nolint:testifylint // Len prints the files
	for i := range want {
		require.True(t, bytes.Equal(want[i], files[i]), "file %d of version %d", i, m.Version)
	}
	s, err := consumers.Fetch(t.Context(), loader, m, "")
	require.NoError(t, err)
	whole, err := hf.Load(landed.Dir)
	require.NoError(t, err)
	require.Equal(t, whole.Weights.Tensors, s.Weights.Tensors)
}

func TestAdaptersArePublishedAloneAndMergeToTheTrainersOwnExport(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]int{"whole": 1, "deltas": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streamtest.Start(t)
			run := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{URL: b.URL()}))
			weights := weights.Config{BaseEvery: every}
			cfg := Publish{DType: "bfloat16", ShardBytes: 20_000, Adapter: true}
			begin := func(e gpu.Engine) *publisher {
				stream, err := OverStreams(run, weights)
				require.NoError(t, err)
				return newPublisher(cfg, Deps{Stream: stream, Engine: e}, filepath.Join(t.TempDir(), "publish"))
			}
			beside := func(dir string, c gpu.Config, d gpu.DType) error {
				_, err := hf.WriteConfig(dir, c, d)
				return err
			}
			follower, err := consumers.OpenFolder(t.TempDir(), beside)
			require.NoError(t, err)
			defer follower.Close()

			e := adapting(t)
			p := begin(e)
			require.NoError(t, p.checkManifestFits(t.Context(), 0))
			var frozen []schemas.Shard
			for v := range int64(6) {
				if v > 0 {
					trainOnce(t, e, 1e-7)
				}
				if v == 3 { // the trainer is killed and begins again from its checkpoint
					checkpoint := t.TempDir()
					pending, err := e.Export(t.Context(), filepath.Join(checkpoint, "model"), gpu.ExportOptions{})
					require.NoError(t, err)
					_, err = pending.Wait(t.Context())
					require.NoError(t, err)
					again := adapting(t)
					require.NoError(t, again.Import(t.Context(), filepath.Join(checkpoint, "model")))
					e, p = again, begin(again)
				}
				require.NoError(t, p.publishVersion(t.Context(), version{number: v}))
				m, err := run.LatestManifest(t.Context())
				require.NoError(t, err)
				require.Equal(t, v, m.Version)
				require.Equal(t, 2, m.Adapter.Rank)
				require.InDelta(t, 16, m.Adapter.Alpha, 0)
				require.Len(t, m.Shards, 1)
				if frozen == nil {
					frozen = m.Adapter.Frozen
				}
				require.Equal(t, frozen, m.Adapter.Frozen)
				require.Greater(t, len(frozen), 3)
				require.Equal(t, every > 1 && v != 0 && v != 3, m.Base != schemas.NoBase)

				want := wholeFiles(t, e, cfg)
				readersGet(t, run, weights, m, follower, want)
				late, err := consumers.OpenFolder(t.TempDir(), beside)
				require.NoError(t, err)
				readersGet(t, run, weights, m, late, want)
				require.NoError(t, late.Close())
			}

			// The same version as merged weights: the other form is known to be published.
			cfg.Adapter = false
			p = begin(e)
			require.NoError(t, p.publishVersion(t.Context(), version{number: 5}))
			trainOnce(t, e, 1e-7)
			require.NoError(t, p.publishVersion(t.Context(), version{number: 6}))
			m, err := run.LatestManifest(t.Context())
			require.NoError(t, err)
			require.Nil(t, m.Adapter)
			readersGet(t, run, weights, m, follower, wholeFiles(t, e, cfg))
			cfg.Adapter = true
			p = begin(e)
			require.NoError(t, p.publishVersion(t.Context(), version{number: 6}))

			// On other weights the frozen ones are published anew.
			w, err := e.Weights(t.Context())
			require.NoError(t, err)
			w.Tensors[0].Data[0] = 2
			halve(w)
			enginetest.SetWeights(t, e, w)
			trainOnce(t, e, 1e-7)
			require.ErrorIs(t, p.publishVersion(t.Context(), version{number: 6}), streams.ErrFenced)
			p.made = nil
			require.NoError(t, p.publishVersion(t.Context(), version{number: 7}))
			m, err = run.LatestManifest(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, frozen, m.Adapter.Frozen)
			readersGet(t, run, weights, m, follower, wholeFiles(t, e, cfg))
			require.NoError(t, p.removeFolders())
		})
	}
}
