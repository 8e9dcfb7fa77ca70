package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Newcomer's friction 7: the sentence judges over all of a step's time, what no named part has among it.
func TestTheLimitIsJudgedOverTheWholeStep(t *testing.T) {
	t.Parallel()
	require.Empty(t, Limits(nil))
	for want, m := range map[string]map[string]float64{
		"the trainer waits for producers":          {"time/step": 1, "time/wait": 0.3, "time/update": 0.7},
		"producers are ahead":                      {"time/step": 1, "time/update": 0.4, "queue/groups_ready": 5},
		"the trainer's own computing":              {"time/step": 1, "time/old_policy": 0.2, "time/update": 0.3, "time/save": 0.2},
		"saving and publishing":                    {"time/step": 1, "time/update": 0.1, "time/save": 0.3, "time/publish": 0.2},
		"the named parts leave the most of a step": {"time/step": 1.55, "time/update": 0.04, "time/save": 0.02, "time/publish": 0.02},
	} {
		require.Contains(t, Limits([]Record{{Metrics: m}}), want)
	}
}
