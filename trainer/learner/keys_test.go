package learner

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/metrics"
)

// What the losses report, under options that make them report all they can, is what the keys say.
func TestEveryNumberOfALossHasAKeyAndEveryKeyANumber(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, name := range loss.Names() {
		_, _, stats := nativeStep(t, func(c *Config) {
			correct(c, name, loss.Correction{Weight: loss.WeightToken, Rules: []string{"mask token ratio 0.7 1.4"}})
			c.Loss.KL.Coef, c.Loss.EntropyCoef, c.Loss.Value.Clip = 0.1, 0.01, 0.2
		})
		for key := range stats.Metrics() {
			have[key] = true
		}
	}
	declared := map[string]bool{}
	for _, g := range metrics.Groups() {
		for _, k := range g.Keys {
			declared[k.Name] = true
			if strings.HasPrefix(k.Name, metrics.Loss("")) || strings.HasPrefix(k.Name, metrics.OffPolicy("")) {
				require.True(t, have[k.Name], "no loss reports %s", k.Name)
			}
		}
	}
	for key := range maps.Keys(have) {
		require.True(t, declared[key], "%s: say in trainer/metrics what it means", key)
	}
}
