package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func load(flags map[string]string) (*Config, error) {
	cfg := Default()
	if _, err := Load(cfg, Sources{Flags: flags}); err != nil {
		return nil, err
	}
	return cfg, cfg.Finish()
}

func TestDefaultIsValidAndFillsWhatFollows(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"run.name": "mine", "run.seed": "7", "run.dir": "elsewhere"})
	require.NoError(t, err)
	require.Equal(t, "elsewhere/mine/broker", cfg.Broker.StoreDir)
	require.Equal(t, "elsewhere/mine/checkpoints", cfg.Trainer.Checkpoint.Dir)
	require.Equal(t, uint64(7), cfg.Trainer.Seed)
	require.Equal(t, cfg.Task.Name, cfg.Trainer.Task)
}

// What follows from another key is no key of its own: setting it would do nothing.
func TestWhatFollowsIsNoKey(t *testing.T) {
	t.Parallel()
	_, err := load(map[string]string{"trainer.seed": "3"})
	require.ErrorContains(t, err, "trainer.seed (from --trainer.seed): unknown key; did you mean run.seed?")
}

func TestFaultsAcrossSectionsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := load(map[string]string{
		"run.name": "no spaces", "task.name": "search", "producer.max_deliver": "9", "trainer.limits.max_tokens": "1000",
		"broker.listen": "0.0.0.0:4222",
	})
	for _, want := range []string{
		`run.name: "no spaces": want up to 64 letters, digits, - or _`,
		"task.corpus: the search task needs a JSONL file of passages",
		"task.questions: the search task needs a JSONL file of questions",
		"trainer.cold_start.steps: 1200: the cold start needs task.demonstrations; 0 does without",
		"producer.max_deliver: 9: must not exceed streams.max_deliver, 5",
		"trainer.limits.max_tokens: 1000: must not exceed model.max_positions, 160",
		`broker.listen: "0.0.0.0:4222": other machines reach it: set tls.cert and tls.key, or allow_plain`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// The file that a run leaves reads back as the same configuration.
func TestYAMLReadsBack(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"trainer.eta": "7", "task.latency.median": "100ms", "task.latency.p99": "2s"})
	require.NoError(t, err)
	text, err := YAML(cfg)
	require.NoError(t, err)
	again := Default()
	_, err = Load(again, Sources{Files: []string{writeFile(t, string(text))}})
	require.NoError(t, err)
	require.NoError(t, again.Finish())
	same, err := YAML(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(same))
}
