package assembly

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// addressedAgent is an agent whose programs know its address.
type addressedAgent struct{ producers.Agent }

func (addressedAgent) Addressed() bool { return true }

// Finding 12b.3: a trainer apart from the producers took the address of an external agent to score versions, and the producers' episodes
// failed for ever.
func TestATrainerApartDoesNotTakeTheAddressOfAnAgent(t *testing.T) {
	t.Parallel()
	data := &tasks.Dataset{Questions: map[tasks.Split][]schemas.Prompt{tasks.Validation: make([]schemas.Prompt, 8)}}
	for name, c := range map[string]struct {
		agent producers.Agent
		apart bool
		at    string
		want  bool
	}{
		"apart":                    {addressedAgent{}, true, config.EvalAtTrainer, false},
		"scored at producers":      {addressedAgent{}, true, config.EvalAtProducers, true},
		"in the producers' own":    {addressedAgent{}, false, config.EvalAtTrainer, true},
		"an agent of this process": {comingAgent{}, true, config.EvalAtTrainer, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(bytes.Buffer)
			cfg := &config.Config{Eval: config.Eval{Every: 1, At: c.at}}
			role := &trainerRole{
				process: process{cfg: cfg, log: slog.New(slog.NewTextHandler(log, nil))}, apart: c.apart,
				course: &Course{Tasks: []*Task{{Name: "boxes", agentName: "visitor", agent: c.agent, Setup: &tasks.Setup{Data: data}}}},
			}
			require.Equal(t, c.want, role.scoresVersions())
			if !c.want {
				require.Contains(t, log.String(), "set eval.at to producers, or eval.every to 0")
				require.Contains(t, log.String(), "agent=visitor")
			}
		})
	}
}
