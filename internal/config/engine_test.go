package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/builtin"
)

func TestEveryEngineThatCanBeNamedIsThere(t *testing.T) {
	t.Parallel()
	cfg := Default(builtin.Doors())
	for _, cfg.Model.Engine = range builtin.Doors().EngineNames() {
		b, err := cfg.Backend()
		require.NoError(t, err)
		require.NotNil(t, b)
	}
	sampler, err := cfg.SamplerBackend()
	require.NoError(t, err)
	require.IsType(t, torch.Backend{}, sampler, "the last of the names")
	cfg.Inference.Engine = "native"
	sampler, err = cfg.SamplerBackend()
	require.NoError(t, err)
	require.IsType(t, native.Backend{}, sampler)
	cfg.Inference.Engine = "cuda"
	require.ErrorContains(t, cfg.Finish(), `inference.engine: unknown "cuda"`)
	cfg.Inference.Engine = ""
	cfg.Model.Engine = "cuda"
	_, err = cfg.Backend()
	require.EqualError(t, err, `model.engine: "cuda": want native or torch`)
	require.ErrorContains(t, cfg.Finish(), `model.engine: "cuda": want native or torch`)
}
