package config

import (
	"bufio"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// switches are settings without which, or with which, nothing reads some keys: off is where nothing does, on where something does.
var switches = map[string]struct{ off, on map[string]string }{
	"torch":         {on: map[string]string{"model.engine": "torch"}},
	"torch samples": {on: map[string]string{"inference.engine": "torch"}},
	"machines": {
		off: map[string]string{"model.engine": "torch"},
		on:  map[string]string{"model.engine": "torch", "torch.ranks": "2", "torch.machines": "gpu2:7070", "torch.secret_file": "secret"},
	},
	"ranks":          {off: map[string]string{"model.engine": "torch"}, on: map[string]string{"model.engine": "torch", "torch.ranks": "2"}},
	"native":         {off: map[string]string{"model.engine": "torch"}},
	"native samples": {off: map[string]string{"model.engine": "torch"}, on: map[string]string{"model.engine": "torch", "inference.engine": "native"}},
	"no folder":      {off: map[string]string{"model.folder": "somewhere"}},
	"lora":           {on: map[string]string{"model.lora.rank": "4"}},
	"servers":        {on: map[string]string{"inference.engine": "vllm"}},
	"own servers": {
		off: map[string]string{"inference.engine": "sglang", "inference.servers": "http://gpu-1:8000"}, on: map[string]string{"inference.engine": "sglang"},
	},
	"counted servers": {
		off: map[string]string{"inference.engine": "vllm", "inference.server.devices": "0,1"}, on: map[string]string{"inference.engine": "vllm"},
	},
	"listed servers":   {off: map[string]string{"inference.engine": "vllm", "inference.server.list": "urls"}, on: map[string]string{"inference.engine": "vllm"}},
	"own batches":      {off: map[string]string{"inference.engine": "vllm"}},
	"openai":           {on: map[string]string{"inference.openai.listen": "127.0.0.1:8000"}},
	"cluster":          {on: map[string]string{"broker.cluster.name": "three", "broker.cluster.listen": "127.0.0.1:6222", "broker.cluster.server": "a"}},
	"journal":          {on: map[string]string{"producer.journal.mode": "auto"}},
	"values of states": {on: map[string]string{"trainer.advantage.name": "vineppo", "producer.values.samples": "2"}},
	"drift":            {on: map[string]string{"model.engine": "torch"}},
	"branches":         {on: map[string]string{"trainer.branch.trunks": "2"}},
	"timing":           {off: map[string]string{"trainer.deterministic": "true"}},
	"messages":         {on: map[string]string{"trainer.archive.messages.bytes": "1073741824"}},
	"bucket": {
		off: map[string]string{"trainer.archive.messages.bytes": "1073741824"},
		on:  map[string]string{"trainer.archive.messages.bytes": "1073741824", "trainer.archive.messages.dir": "s3://bucket/prefix"},
	},
	"archive": {off: map[string]string{"trainer.archive.bytes": "0"}},
	"bundles": {off: map[string]string{"trainer.bundles.bytes": "0"}},
	"scores":  {off: map[string]string{"eval.every": "0"}},
	"scores at producers": {
		off: map[string]string{"eval.at": "producers", "eval.every": "0"}, on: map[string]string{"eval.at": "producers"},
	},
	"tool workers":  {on: map[string]string{"tools.search.on": "workers"}},
	"traces":        {on: map[string]string{"tracing.endpoint": "http://collector:4318"}},
	"page":          {off: map[string]string{"view.listen": ""}},
	"tries":         {on: map[string]string{"tools.search.retry.attempts": "3"}},
	"breaker":       {on: map[string]string{"tools.search.breaker.failures": "3"}},
	"latency":       {on: map[string]string{"tools.search.latency.median": "1s", "tools.search.latency.p99": "2s"}},
	"slow calls":    {on: map[string]string{"tools.search.latency.slow_share": "0.1", "tools.search.latency.slow": "1s"}},
	"cut":           {off: map[string]string{"tools.search.cut.max_tokens": "0"}},
	"length":        {on: map[string]string{"tasks.library.reward.length": "0.1"}},
	"critic":        {on: map[string]string{"trainer.advantage.name": "gae", "trainer.critic.network": "head"}},
	"schedule":      {on: map[string]string{"trainer.optimizer.schedule": "linear"}},
	"cold start":    {off: map[string]string{"trainer.cold_start.steps": "0"}},
	"kl":            {on: map[string]string{"trainer.loss.kl.coef": "0.1"}},
	"kl in rewards": {on: map[string]string{"trainer.loss.kl.coef": "0.1", "trainer.loss.kl.in": "reward"}},
	"durations":     {on: map[string]string{"trainer.loss.duration.share": "0.5"}},
	"resampling":    {on: map[string]string{"trainer.selection.resample.by": "on_correct", "trainer.selection.resample.take": "4"}},
	"overlong":      {on: map[string]string{"trainer.selection.overlong.limit": "64"}},
	"rows":          {on: map[string]string{"trainer.selection.accumulate.rows": "64"}},
	"uniform groups": {
		off: map[string]string{"trainer.selection.drop_zero_variance": "false"}, on: map[string]string{"trainer.selection.drop_zero_variance": "true"},
	},
	"extremes": {on: map[string]string{"trainer.selection.extremes_only": "true"}},
}

// readers are the keys by what they are read under, from testdata/readers.txt: a key, then its switches, or always, or elsewhere, which
// is where another test knows.
func readers(t *testing.T) map[string][]string {
	t.Helper()
	file, err := os.Open("testdata/readers.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	out := map[string][]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, under, ok := strings.Cut(lines.Text(), ": ")
		if strings.HasPrefix(key, "#") {
			continue
		}
		require.True(t, ok, "%q: want a key, a colon and what it is read under", lines.Text())
		require.NotContains(t, out, key)
		out[key] = strings.Split(under, ", ")
	}
	require.NoError(t, lines.Err())
	return out
}

// unreadUnder is why nothing reads a key under some settings.
func unreadUnder(t *testing.T, settings map[string]string, key string) string {
	t.Helper()
	cfg, _, err := Resolve(builtin.Doors(), Sources{Flags: settings})
	require.NoError(t, err)
	return cfg.unreadReason(key)
}

// Findings Q9 of the core's second review and 12a.4 of the twelfth reader: every key of the configuration is one that always counts, or it is known under which
// setting nothing reads it, and then it is named. A new key fails here until testdata/readers.txt says which it is.
func TestEveryKeyThatIsPassedOverIsNamed(t *testing.T) {
	t.Parallel()
	under := readers(t)
	cfg := Default(builtin.Doors())
	require.Equal(t, slices.Sorted(slices.Values(Keys(cfg))), slices.Sorted(maps.Keys(under)), "testdata/readers.txt has each key once")
	used := map[string]bool{}
	for key, names := range under {
		for _, name := range names {
			switch name {
			case "always":
				require.Empty(t, cfg.unreadReason(key), key)
				continue
			case "elsewhere":
				continue
			}
			s, ok := switches[name]
			require.True(t, ok, "%s: no switch is called %q", key, name)
			used[name] = true
			require.NotEmpty(t, unreadUnder(t, s.off, key), "%s without %s", key, name)
			require.Empty(t, unreadUnder(t, s.on, key), "%s with %s", key, name)
		}
	}
	require.Len(t, used, len(switches), "a switch of no key: %v", used)
}
