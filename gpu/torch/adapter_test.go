package torch_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/fulltest"
)

func someLoRA() native.LoRA {
	o := native.DefaultLoRA()
	o.Rank, o.Alpha, o.Targets = 3, 6, []string{"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"}
	return o
}

// adapted is a backend of this package and an engine in Go that train the same adapters.
func adapted(t testing.TB, ranks int, cfg gpu.Config) (torch.Backend, *native.Engine) {
	t.Helper()
	b := backend(ranks)
	b.LoRA, b.Start.Seed = someLoRA(), 5
	inGo, err := native.New(cfg, native.Options{LoRA: someLoRA(), Seed: 5})
	require.NoError(t, err)
	return b, inGo
}

// Two steps of adapters, by one rank, by two ranks and by the engine in Go: outputs, the norm, the merged weights and the moments.
func TestAdaptersAgreeOnEveryFamily(t *testing.T) {
	fulltest.Need(t, "processes that import PyTorch for each family")
	needPython(t)
	for name, cfg := range someFamilies("qwen2") {
		t.Run(name, func(t *testing.T) {
			folder := written(t, cfg)
			parts, up := someParts(cfg)
			_, inGo := adapted(t, 1, cfg)
			want := train(t, inGo, folder, parts, up)
			frozen, err := native.New(cfg, native.Options{})
			require.NoError(t, err)
			require.NoError(t, frozen.Import(t.Context(), folder))
			before, err := frozen.Weights(t.Context())
			require.NoError(t, err)
			for ranks := 1; ranks <= 2; ranks++ {
				b, _ := adapted(t, ranks, cfg)
				b.Config.Deterministic, b.Config.Recompute = false, ranks == 2
				e := engineOf(t, b, cfg)
				got := train(t, e, folder, parts, up)
				want.near(t, got, 1e-4)
				changed := 0
				for i, x := range got.weights.Tensors {
					if !same(x.Data, before.Tensors[i].Data) {
						changed++
					}
				}
				require.Equal(t, 5*cfg.NumLayers+1, changed, "the adapters' matrices and the value head, and nothing else")
				require.NoError(t, e.Close())
			}
		})
	}
}

func same(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// exported are the files that an engine exports by these options.
func exported(t *testing.T, e gpu.Engine, o gpu.ExportOptions) map[string][]byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "exported")
	pending, err := e.Export(t.Context(), dir, o)
	require.NoError(t, err)
	files, err := pending.Wait(t.Context())
	require.NoError(t, err)
	contents := map[string][]byte{}
	for _, f := range files {
		contents[f.Name], err = os.ReadFile(filepath.Join(dir, f.Name))
		require.NoError(t, err)
	}
	return contents
}

// What either engine has written, the other goes on from, with moments: adapters alone, and a checkpoint with merged weights beside
// them. On other weights the moments are refused.
func TestEnginesGoOnFromEachOthersAdapters(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen3"]
	folder := written(t, cfg)
	parts, up := someParts(cfg)
	b, inGo := adapted(t, 2, cfg)
	e := engineOf(t, b, cfg)
	defer e.Close()
	step := func(e gpu.Engine) float64 {
		require.NoError(t, e.Accumulate(t.Context(), parts, func(i int, _ *gpu.Outputs) (*gpu.Gradients, error) { return up[i], nil }))
		stats, err := e.Step(t.Context(), stepOptions)
		require.NoError(t, err)
		return stats.GradNorm
	}
	saved := func(e gpu.Engine) (dir string, files []gpu.File) {
		dir = filepath.Join(t.TempDir(), "saved")
		pending, err := e.Export(t.Context(), dir, gpu.ExportOptions{})
		require.NoError(t, err)
		files, err = pending.Wait(t.Context())
		require.NoError(t, err)
		for _, f := range files {
			info, err := os.Stat(filepath.Join(dir, f.Name))
			require.NoError(t, err)
			require.Equal(t, f.Size, info.Size(), f.Name)
		}
		_, err = e.SaveOptimizer(t.Context(), dir)
		require.NoError(t, err)
		return dir, files
	}
	var lists [2][]gpu.File
	for i, pair := range [][2]gpu.Engine{{inGo, e}, {e, inGo}} {
		for _, x := range pair {
			require.NoError(t, x.Import(t.Context(), folder))
			require.NoError(t, x.ResetOptimizer(t.Context()))
		}
		step(pair[0])
		var dir string
		dir, lists[i] = saved(pair[0])
		require.NoError(t, pair[1].Import(t.Context(), dir))
		require.NoError(t, pair[1].LoadOptimizer(t.Context(), dir, 1))
		require.InEpsilon(t, step(pair[0]), step(pair[1]), 1e-4)
	}
	require.Equal(t, lists[0], lists[1], "the same files, of the same sizes")

	// Adapters alone, in PEFT's files: the same bytes where the numbers are the same.
	require.NoError(t, e.Import(t.Context(), folder))
	require.NoError(t, inGo.Import(t.Context(), folder))
	adapter := gpu.ExportOptions{Adapter: true, DType: gpu.BFloat16}
	contents := exported(t, e, adapter)
	require.Equal(t, exported(t, inGo, adapter), contents)
	require.Contains(t, contents, gpu.AdapterConfigFile)

	// What they are added to: the folder's numbers, without a value head.
	frozen := gpu.ExportOptions{Frozen: true, DType: gpu.BFloat16}
	contents = exported(t, e, frozen)
	require.Equal(t, exported(t, inGo, frozen), contents)
	require.NotContains(t, contents, gpu.ValueHeadFile)

	// A rank is lost: the base comes back with the adapters.
	step(e)
	dir, _ := saved(e)
	want := step(e)
	require.NoError(t, syscall.Kill(e.(*torch.Engine).PIDs()[1], syscall.SIGKILL))
	_, err := e.Step(t.Context(), stepOptions)
	require.ErrorIs(t, err, gpu.ErrLost)
	require.NoError(t, e.Discard(t.Context()))
	require.NoError(t, e.Import(t.Context(), dir))
	require.NoError(t, e.LoadOptimizer(t.Context(), dir, 1))
	require.Equal(t, want, step(e))

	// Begun with another model, the engine takes the merged weights and refuses the moments.
	require.NoError(t, e.Import(t.Context(), writtenFrom(t, cfg, 8)))
	require.NoError(t, e.Import(t.Context(), dir))
	require.ErrorIs(t, e.LoadOptimizer(t.Context(), dir, 1), native.ErrOtherBase)

	// Broken adapters are refused before anything is changed.
	require.NoError(t, e.Import(t.Context(), folder))
	broken, err := safetensors.Encode(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "x", Shape: []int{1}, Data: []float32{1}}}}, safetensors.F32)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter", gpu.AdapterFile), broken, 0o600))
	err = e.Import(t.Context(), dir)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	require.ErrorContains(t, err, "is missing")
	require.ErrorContains(t, err, "x [1] is none of the adapters'")
}
