package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/parts"
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

// What a program brings has a section of its own.
func TestAnEngineOfTheProgramsOwnHasKeys(t *testing.T) {
	t.Parallel()
	type keys struct {
		Layers int `koanf:"layers" min:"1"`
	}
	var opened parts.EngineOpening
	registry := builtin.Doors()
	registry.Engines = append(registry.Engines, parts.Engine{
		Name: "mine", Keys: func() any { return &keys{Layers: 2} },
		Open: func(o parts.EngineOpening) (gpu.Backend, error) { opened = o; return nil, nil },
	})
	load := func(flags map[string]string) (*Config, error) {
		cfg, _, err := Resolve(registry, Sources{Flags: flags})
		if err == nil {
			err = cfg.Finish()
		}
		return cfg, err
	}
	cfg, err := load(map[string]string{"model.engine": "mine", "engines.mine.layers": "5"})
	require.NoError(t, err)
	_, err = cfg.Backend()
	require.NoError(t, err)
	require.Equal(t, &keys{Layers: 5}, opened.Own)
	_, err = load(map[string]string{"model.engine": "mine", "engines.mine.layers": "0"})
	require.ErrorContains(t, err, "engines.mine.layers: 0: must be at least 1")
	cfg, err = load(map[string]string{"engines.mine.layers": "3"})
	require.NoError(t, err)
	unread := cfg.Unread(map[string]string{"engines.mine.layers": "--engines.mine.layers"})
	require.Len(t, unread, 1)
	require.Equal(t, "model.engine is native", unread[0].Problem)
	_, err = load(map[string]string{"engines.yours.layers": "3"})
	require.ErrorContains(t, err, "engines.yours.layers")
}
