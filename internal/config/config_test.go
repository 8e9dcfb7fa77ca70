package config

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

func load(flags map[string]string) (*Config, error) {
	cfg, _, err := Resolve(builtin.Doors(), Sources{Flags: flags})
	if err != nil {
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
		"run.name": "no spaces", "tasks.mine.type": "corpus", "producer.max_deliver": "9", "trainer.limits.max_tokens": "1000",
		"broker.listen": "0.0.0.0:4222", "broker.url": "nats://a:4222,http://b:4222", "model.heads": "3", "model.engine": "cuda",
		"log.level": "loud", "log.format": "x",
	})
	for _, want := range []string{
		`run.name: "no spaces": want up to 64 letters, digits, - or _`,
		"tasks.mine.corpus: the task needs a JSONL file of passages",
		"tasks.mine.questions: the task needs a JSONL file of questions",
		"producer.max_deliver: 9: must not exceed streams.max_deliver, 5",
		"trainer.limits.max_tokens: 1000: must not exceed model.max_positions, 192",
		`broker.listen: "0.0.0.0:4222": other machines reach it: set tls.cert and tls.key, or allow_plain`,
		`broker.url: "http://b:4222": want nats://host:4222, or tls://host:4222`,
		"model.heads: 3: a head is hidden / heads wide, here 21: must be even",
		"model.kv_heads: 2: must divide heads, 3",
		`model.engine: "cuda": want native or torch`,
		`log.level: "loud": want debug, info, warn or error`,
		`log.format: unknown "x" (valid: auto, text, json)`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// Defect P5: a ticket stream with less room than what is issued was taken.
func TestTheTicketStreamHasRoomForWhatIsIssued(t *testing.T) {
	t.Parallel()
	for tickets, flags := range map[string]map[string]string{
		"640":   {},
		"40960": {"trainer.batch_groups": "512", "trainer.group_size": "16", "streams.max_trajectories": "1000000"},
		"144":   {"trainer.eta": "0", "trainer.batch_groups": "16", "trainer.advantage.name": "remax"},
		"64":    {"trainer.max_concurrent_groups": "8"},
	} {
		flags["streams.max_tickets"] = tickets
		_, err := load(flags)
		require.NoError(t, err)
		least, err := strconv.Atoi(tickets)
		require.NoError(t, err)
		flags["streams.max_tickets"] = strconv.Itoa(least - 1)
		_, err = load(flags)
		require.ErrorContains(t, err, "streams.max_tickets: "+strconv.Itoa(least-1)+": the groups that may be underway (trainer.batch_groups")
		require.ErrorContains(t, err, "have "+tickets+" tickets")
	}
}

// The file that a run leaves reads back as the same configuration.
func TestYAMLReadsBack(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"trainer.eta": "7", "tools.search.latency.median": "100ms", "tools.search.latency.p99": "2s"})
	require.NoError(t, err)
	text, err := YAML(cfg)
	require.NoError(t, err)
	again, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, string(text))}})
	require.NoError(t, err)
	require.NoError(t, again.Finish())
	same, err := YAML(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(same))
}

// What a run's own file says of its folders follows another run's name.
func TestPortableFollowsAnotherName(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"run.name": "one", "broker.store_dir": "elsewhere"})
	require.NoError(t, err)
	text, err := YAML(cfg.Portable())
	require.NoError(t, err)
	other, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, string(text))}, Flags: map[string]string{"run.name": "two"}})
	require.NoError(t, err)
	require.NoError(t, other.Finish())
	require.Equal(t, "runs/two/checkpoints", other.Trainer.Checkpoint.Dir)
	require.Equal(t, "elsewhere", other.Broker.StoreDir)
}

func TestBrokerURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "nats://a:4222", "a:4222", "tls://a", "wss://a:443", "nats://a:1, nats://b:2"} {
		_, err := load(map[string]string{"broker.url": url})
		require.NoError(t, err, url)
	}
	for _, url := range []string{"nats://", "http://a:4222", "nats//a", "nats:// a"} {
		_, err := load(map[string]string{"broker.url": url})
		require.ErrorContains(t, err, "broker.url", url)
	}
}

// Servers hold one version: evaluation tickets that are pinned to another would wait for ever.
func TestEvaluationTicketsNeedEnginesThatHoldAVersion(t *testing.T) {
	t.Parallel()
	_, err := load(map[string]string{"eval.at": "producers", "inference.engine": "vllm"})
	require.ErrorContains(t, err, "eval.at: producers: inference.engine is vllm")
	for _, temperature := range []string{"0.005", "3"} { // finding 16b.7
		_, err = load(map[string]string{"trainer.sampling.temperature": temperature, "inference.engine": "vllm"})
		require.ErrorContains(t, err, "trainer.sampling.temperature: "+temperature+": inference.engine is vllm, which samples at 0.01")
	}
	_, err = load(map[string]string{"eval.at": "elsewhere"})
	require.ErrorContains(t, err, `eval.at: unknown "elsewhere" (valid: trainer, producers)`)
	_, err = load(map[string]string{"eval.at": "producers"})
	require.NoError(t, err)
}
