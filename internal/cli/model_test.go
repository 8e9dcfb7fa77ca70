package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

func TestEveryEngineThatCanBeNamedIsThere(t *testing.T) {
	t.Parallel()
	cfg := config.Default(builtin.Doors())
	for _, cfg.Model.Engine = range config.Engines() {
		b, err := backend(cfg)
		require.NoError(t, err)
		require.NotNil(t, b)
	}
	cfg.Model.Engine = "cuda"
	_, err := backend(cfg)
	require.EqualError(t, err, `model.engine: "cuda": want native`)
}
