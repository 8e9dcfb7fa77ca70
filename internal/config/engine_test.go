package config

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	cfg.Model.Engine = "cuda"
	_, err := cfg.Backend()
	require.EqualError(t, err, `model.engine: "cuda": want native or torch`)
	require.ErrorContains(t, cfg.Finish(), `model.engine: "cuda": want native or torch`)
}
