package assembly

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
)

// Several producers of a process have names of their own, and metrics that are added up for its health.
func TestSeveralProducersHaveNamesAndMetricsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, named := range []string{"", "mine"} {
		cfg, _, err := Resolve(builtin.Doors(), config.Sources{Flags: map[string]string{"producer.name": named, "run.producers": "3"}})
		require.NoError(t, err)
		p := process{cfg: cfg, registry: telemetry.NewRegistry("v", "c")}
		names := map[string]bool{newProducerRole(p, nil, nil).own.Name: true}
		for number := 1; number <= 3; number++ {
			role := newProducerRole(p, nil, nil)
			role.setNumber(number)
			require.Equal(t, number == 1, names[role.own.Name], "the first has the name of a single one: %s", role.own.Name)
			names[role.own.Name] = true
			_, err := producers.NewMetrics(role.collectors)
			require.NoError(t, err)
			_, err = evaluation.NewMetrics(role.collectors)
			require.NoError(t, err)
		}
		require.Zero(t, telemetry.Counted(p.registry, "weir_producer_episodes_running"))
		families, err := p.registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "weir_producer_episodes_running" {
				require.Len(t, f.GetMetric(), 3)
				require.Equal(t, "producer", f.GetMetric()[0].GetLabel()[0].GetName())
			}
		}
	}
	_, _, err := Resolve(builtin.Doors(), config.Sources{Flags: map[string]string{"run.producers": "0"}})
	require.ErrorContains(t, err, "run.producers")
}

// Producers of a process share the agent, the tools and the reward of a task.
func TestSeveralProducersTrainInAProcess(t *testing.T) {
	t.Parallel()
	trainShortly(t, map[string]string{
		"run.dir": t.TempDir(), "run.producers": "3", "producer.concurrency": "2", "trainer.batch_groups": "4", "view.listen": "",
		"eval.at": "producers", "eval.every": "1", "eval.questions": "4",
	})
}
