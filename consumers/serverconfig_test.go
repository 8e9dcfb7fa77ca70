package consumers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServersAreNamedRightly(t *testing.T) {
	t.Parallel()
	good := DefaultConfig()
	good.Engine, good.Servers = EngineVLLM, []string{"http://gpu-1:8000", "https://gpu-2"}
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*Config){
		`servers: http://gpu-1:8000,https://gpu-2,: name what they are in engine: vllm or sglang`: func(c *Config) { c.Engine = EngineHere },
		`engine: unknown "vlm": did you mean "vllm"?`:                                             func(c *Config) { c.Engine = "vlm" },
		`servers: "gpu-1:8000": want a URL such as http://gpu-1:8000`:                             func(c *Config) { c.Servers[0] = "gpu-1:8000" },
		`servers: "http://gpu-1:8000/v1": want a URL`:                                             func(c *Config) { c.Servers[0] = "http://gpu-1:8000/v1" },
		`servers: "https://gpu-2": named twice`:                                                   func(c *Config) { c.Servers[0] = "https://gpu-2" },
		`server.list: "list": servers are named in inference.servers too`:                         func(c *Config) { c.Server.List = "list" },
		`server.count: 0: must be positive`:                                                       func(c *Config) { c.Server.Count = 0 },
		`server.devices: ["" "1"]: an entry is empty`:                                             func(c *Config) { c.Server.Devices = []string{"", "1"} },
		`server.stall_timeout: 0s: must be positive`:                                              func(c *Config) { c.Server.StallTimeout = 0 },
	} {
		c := good
		c.Servers = append([]string(nil), good.Servers...)
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
