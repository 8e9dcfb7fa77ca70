package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/tasks/corpus"
	"github.com/weir-rl/weir/producers/tasks/countries"
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

// What an older build has left in a run's folder is read: a run that is over can still be scored and asked.
func TestAFileOfAnOlderBuildIsReadFromARunsFolder(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `task:
  name: countries
  countries: {split_seed: 7}
  library: {split_seed: 9}
  corpus: ""
  search: {top_k: 2}
  latency: {median: 1s, p99: 2s}
  tool_timeout: 5s
  reward: {answered: 0.25, by_source: {2n: {f1: 1}}}
agent: {max_invalid: 2}
native: {lora: {rank: 3, targets: [q_proj]}}
trainer: {eta: 3}
`)
	cfg, _, err := Resolve(builtin.Doors(), Sources{Written: file})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	require.Equal(t, []string{"countries"}, cfg.Active())
	require.Equal(t, uint64(7), cfg.Tasks["countries"].Own.(*countries.Config).SplitSeed)
	require.Equal(t, 5*time.Second, cfg.Tools["search"].Timeout)
	require.Equal(t, time.Second, cfg.Tools["search"].Latency.Median)
	require.Equal(t, 2, cfg.Agents["search"].Own.(*search.Config).MaxInvalid)
	require.Equal(t, 3, cfg.Trainer.Eta)
	require.Equal(t, 3, cfg.Model.LoRA.Rank)
	require.Equal(t, []string{"q_proj"}, cfg.Model.LoRA.Targets)
	values := Values(cfg)
	require.InDelta(t, 0.25, values["tasks.countries.reward.answered"], 0)
	require.Equal(t, map[string]map[string]float64{"2n": {"f1": 1}}, values["tasks.countries.reward.by_source"])
	require.Equal(t, 2, values["tools.search.top_k"])

	file = writeFile(t, "task: {name: search, corpus: c.jsonl, questions: q.jsonl, search: {k1: 1}}\n")
	cfg, _, err = Resolve(builtin.Doors(), Sources{Written: file})
	require.NoError(t, err)
	require.Equal(t, "corpus", cfg.Tasks["search"].Type)
	require.Equal(t, "c.jsonl", cfg.Tasks["search"].Own.(*corpus.Config).Corpus)
	require.InDelta(t, 1, Values(cfg)["tools.search.k1"], 0)
	_, _, err = Resolve(builtin.Doors(), Sources{Files: []string{file}})
	require.ErrorContains(t, err, "this key is gone")
}
