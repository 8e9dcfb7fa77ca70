package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A key of an older build is refused with the name of the key that took its place.
func TestAKeyThatIsGoneIsRefusedWithTheNewOne(t *testing.T) {
	t.Parallel()
	for key, now := range map[string]string{
		"task.name":                   "tasks.NAME, a section named as the task is, such as tasks.library.weight",
		"task.countries.split_seed":   "tasks.countries.split_seed",
		"task.search.k1":              "tools.search.k1",
		"task.latency.median":         "tools.search.latency.median",
		"task.tool_timeout":           "tools.search.timeout",
		"task.reward.exact_match":     "tasks.library.reward.exact_match",
		"task.questions":              "tasks.corpus.questions",
		"agent.invalid":               "agents.search.invalid",
		"task.library.demo.seed":      "tasks.library.demo.seed",
		"task.reward.by_source.2n.f1": "tasks.library.reward.by_source.2n.f1",
		"native.lora.rank":            "model.lora.rank",
	} {
		_, err := load(map[string]string{key: "1"})
		require.ErrorContains(t, err, key+" (from --"+key+"): this key is gone: use "+now)
	}
}
