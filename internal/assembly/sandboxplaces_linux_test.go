//go:build amd64 || arm64

package assembly

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// Finding 13 R6: the producers of a process warn once of the sandboxes that they share; the warning counts all of their episodes.
func TestTheProducersOfAProcessWarnOnceOfFewPlaces(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
run: {producers: 3}
producer: {concurrency: 2}
sandbox: {most: 4, warm: 0, tier: none, unsafe: `+sandbox.Understood+`}
tasks:
  countries: {tools: [python, server]}
tools:
  server: {type: mcp, command: [server], allow: ["*"]}
`), 0o600))
	cfg, _, err := Resolve(builtin.Doors(), config.Sources{Files: []string{file}, Flags: map[string]string{"run.dir": t.TempDir()}})
	require.NoError(t, err)
	for _, c := range []struct {
		numbers []int
		want    int
	}{{[]int{1, 2, 3}, 1}, {[]int{0}, 0}} {
		spaces := workspace.New(cfg.Sandbox)
		spaces.Claim()
		var out bytes.Buffer
		p := process{cfg: cfg, log: slog.New(slog.NewTextHandler(&out, nil)), registry: telemetry.NewRegistry("v", "c")}
		for _, number := range c.numbers {
			role := newProducerRole(p, nil, &Course{spaces: spaces})
			if number > 0 {
				role.setNumber(number)
			}
			require.NoError(t, role.openSandboxes(t.Context()))
		}
		require.Equal(t, c.want, strings.Count(out.String(), "6 episodes at once can hold all 4 of sandbox.most"), out.String())
		require.Equal(t, c.want, strings.Count(out.String(), "level=WARN"), out.String())
		require.NoError(t, spaces.Close())
	}
}
