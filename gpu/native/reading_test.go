package native

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// tellTale is a source that fails at one tensor, and knows the longest part that was asked for.
type tellTale struct {
	gpu.Source
	fails   string
	longest atomic.Int64
}

var errDisk = errors.New("the disk fails")

func (s *tellTale) ReadPart(ctx context.Context, name string, at int, data []float32) error {
	for now := s.longest.Load(); int64(len(data)) > now && !s.longest.CompareAndSwap(now, int64(len(data))); now = s.longest.Load() {
	}
	if name == s.fails {
		return errDisk
	}
	return s.Source.ReadPart(ctx, name, at, data)
}

// families are small models of every shape that the layout knows, their sizes no whole numbers of panels.
func families() map[string]gpu.Config {
	base := gpu.Config{
		ModelType: "llama", VocabSize: 301, HiddenSize: 36, IntermediateSize: 52, NumLayers: 2, NumHeads: 3, NumKVHeads: 1, HeadDim: 12,
		RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 64,
	}
	tied, biased, normed := base, base, base
	tied.TieEmbeddings = true
	biased.QKVBias, biased.ModelType = true, "qwen2"
	normed.QKNorm, normed.ModelType = true, "qwen3"
	return map[string]gpu.Config{"llama": base, "tied": tied, "biases": biased, "norms": normed}
}

// A decoder over files samples what one over the same numbers in memory does, bit for bit, before and after a swap.
func TestADecoderOverFilesIsOneOverMemory(t *testing.T) {
	for name, cfg := range families() {
		for _, stored := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
			for _, keep := range []gpu.DType{"", gpu.Float32, gpu.BFloat16} {
				t.Run(fmt.Sprintf("%s stored as %s kept as %q", name, stored, keep), func(t *testing.T) {
					options := gpu.DecoderOptions{Slots: 1, MaxTokens: 64, DType: keep}
					var files [2]*gpu.Weights
					var resident [2]*gpu.Weights
					for v := range files {
						engine, err := New(cfg, Options{Seed: uint64(v + 1)})
						require.NoError(t, err)
						dir := filepath.Join(t.TempDir(), "model")
						_, err = engine.Export(t.Context(), dir, gpu.ExportOptions{DType: stored, ShardBytes: 30_000})
						require.NoError(t, err)
						folder, err := hf.Open(dir)
						require.NoError(t, err)
						defer folder.Close()
						files[v] = folder.Weights()
						resident[v], err = files[v].Resident(t.Context())
						require.NoError(t, err)
					}
					want, err := NewDecoder(cfg, resident[0], options, 2)
					require.NoError(t, err)
					got, err := NewDecoder(cfg, files[0], options, 2)
					require.NoError(t, err)
					require.Equal(t, sampled(t, want), sampled(t, got))
					for _, v := range []int{1, 0, 1} {
						for d, w := range map[gpu.Decoder]*gpu.Weights{want: resident[v], got: files[v]} {
							commit, err := d.Prepare(w)
							require.NoError(t, err)
							commit()
						}
						require.Equal(t, sampled(t, want), sampled(t, got), v)
					}
				})
			}
		}
	}
}

// sampled are the tokens and log-probabilities of a short sequence.
func sampled(t *testing.T, d gpu.Decoder) (out []gpu.Sampled) {
	t.Helper()
	slot, err := d.Open()
	require.NoError(t, err)
	defer d.Close(slot)
	next := []int32{1, 2, 3}
	for range 8 {
		got, err := d.Extend(t.Context(), []gpu.Extension{{Slot: slot, Tokens: next, Sample: true, Temperature: 1, U: 0.37}})
		require.NoError(t, err)
		out = append(out, got[0])
		next = []int32{got[0].Token}
	}
	return out
}

// A file that cannot be read leaves the version in use as it is; the next try takes.
func TestAFileThatCannotBeReadLeavesTheVersionInUse(t *testing.T) {
	for name, cfg := range families() {
		t.Run(name, func(t *testing.T) {
			engine, err := New(cfg, Options{Seed: 3})
			require.NoError(t, err)
			dir := filepath.Join(t.TempDir(), "model")
			_, err = engine.Export(t.Context(), dir, gpu.ExportOptions{})
			require.NoError(t, err)
			folder, err := hf.Open(dir)
			require.NoError(t, err)
			defer folder.Close()
			source := &tellTale{Source: folder.Weights().Source}
			w := &gpu.Weights{Tensors: folder.Weights().Tensors, Source: source}
			d, err := NewDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 64}, 2)
			require.NoError(t, err)
			want := sampled(t, d)
			for _, tensor := range w.Tensors {
				source.fails = tensor.Name
				_, err := d.Prepare(w)
				require.ErrorIs(t, err, errDisk, tensor.Name)
				require.Equal(t, want, sampled(t, d), tensor.Name)
				_, err = NewDecoder(cfg, w, gpu.DecoderOptions{Slots: 1, MaxTokens: 64}, 2)
				require.ErrorIs(t, err, errDisk, tensor.Name)
			}
			source.fails = ""
			commit, err := d.Prepare(w)
			require.NoError(t, err)
			commit()
			require.Equal(t, want, sampled(t, d))
		})
	}
}

// Matrices are read some rows at a time: never is one whole in float32.
func TestMatricesAreReadInParts(t *testing.T) {
	cfg := families()["tied"]
	cfg.VocabSize, cfg.HiddenSize = 50_000, 48
	engine, err := New(cfg, Options{Seed: 3})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "model")
	_, err = engine.Export(t.Context(), dir, gpu.ExportOptions{DType: gpu.BFloat16})
	require.NoError(t, err)
	folder, err := hf.Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	source := &tellTale{Source: folder.Weights().Source}
	d, err := NewDecoder(cfg, &gpu.Weights{Tensors: folder.Weights().Tensors, Source: source}, gpu.DecoderOptions{Slots: 1, MaxTokens: 64}, 2)
	require.NoError(t, err)
	require.LessOrEqual(t, source.longest.Load(), int64(readRows))
	require.Greater(t, cfg.VocabSize*cfg.HiddenSize, 2*readRows, "or the test shows nothing")
	whole, err := folder.Weights().Resident(t.Context())
	require.NoError(t, err)
	want, err := NewDecoder(cfg, whole, gpu.DecoderOptions{Slots: 1, MaxTokens: 64}, 2)
	require.NoError(t, err)
	require.Equal(t, sampled(t, want), sampled(t, d))
}
