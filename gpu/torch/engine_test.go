package torch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/fulltest"
)

// backend is one for tests: on the processor, with bits that do not depend on the packing. WEIR_TEST_TORCH_DEVICE puts single ranks
// elsewhere, as make gpu-check does; groups stay, for there may be one GPU.
func backend(ranks int) torch.Backend {
	cfg := torch.DefaultConfig()
	cfg.Ranks, cfg.Device, cfg.DType, cfg.Deterministic = ranks, "cpu", "float32", true
	if device := os.Getenv("WEIR_TEST_TORCH_DEVICE"); device != "" && ranks == 1 {
		cfg.Device = device
	}
	return torch.Backend{Config: cfg, Threads: 1}
}

func engineOf(t testing.TB, b torch.Backend, cfg gpu.Config) gpu.Engine {
	t.Helper()
	e, err := b.New(cfg)
	require.NoError(t, err)
	return e
}

func TestEngineKeepsTheContract(t *testing.T) {
	fulltest.Need(t, "the whole contract takes processes: the families are tested in TestRanksAndEnginesAgreeOnEveryFamily")
	needPython(t)
	enginetest.Run(t, newPool(t, backend(1)).engine)
}

// Models come in half precision too.
func TestAFolderInHalfPrecisionIsRead(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen2"]
	folder := written(t, cfg)
	model, err := hf.Load(folder)
	require.NoError(t, err)
	data, err := safetensors.Encode(model.Weights, safetensors.F16)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, gpu.WeightsFile), data, 0o600))
	half, err := hf.Load(folder)
	require.NoError(t, err)

	e := engineOf(t, backend(1), cfg)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Import(t.Context(), folder))
	out := t.TempDir()
	pending, err := e.Export(t.Context(), filepath.Join(out, "model"), gpu.ExportOptions{})
	require.NoError(t, err)
	_, err = pending.Wait(t.Context())
	require.NoError(t, err)
	got, err := hf.Load(filepath.Join(out, "model"))
	require.NoError(t, err)
	require.Equal(t, half.Weights, got.Weights)

	d, _ := decoders(t, cfg, written(t, cfg), 1)
	commit, err := d.PrepareFolder(t.Context(), folder)
	require.NoError(t, err)
	commit()
}
