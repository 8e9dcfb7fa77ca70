package command

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/lab/chaos"
)

// Ranks, samplers and servers are killed beside their roles: nothing is lost, and none is left.
func TestChaosKillsRanksSamplersAndServers(t *testing.T) {
	fulltest.Need(t, "three runs, one of which starts processes that import PyTorch")
	for _, of := range []struct {
		engine, mode string
		kills        []string
	}{
		{chaos.EngineTorch, chaos.ModeProcesses, []string{"trainer/rank", "inference/sampler", "trainer", "trainer/rank"}},
		{chaos.EngineVLLM, chaos.ModeEmbedded, []string{"up/server", "up", "up/server"}},
		{chaos.EngineSGLang, chaos.ModeProcesses, []string{"inference/server", "inference", "broker", "inference/server"}},
	} {
		t.Run(of.engine, func(t *testing.T) {
			if of.engine == chaos.EngineTorch {
				needTorch(t)
			}
			c := harnessed(t, of.mode, func(cfg *config.Config) { chaos.WithEngine(cfg, of.engine, program(t)) })
			c.Engine, c.Kills, c.Steps, c.Patience = of.engine, of.kills, 2, 10*time.Minute
			report := survive(t, c)
			want := map[string]int{}
			for _, k := range of.kills {
				want[k]++
			}
			require.Equal(t, want, report.Kills)
		})
	}
}
