package deploy_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/dashboards"
	"github.com/weir-rl/weir/internal/docs"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// files are the texts of this folder and docker-compose.yml, by path.
func files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out[path] = string(data)
	}
	add(filepath.Join("..", "docker-compose.yml"))
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "bin" {
			return fs.SkipDir
		}
		if !d.IsDir() && filepath.Ext(path) != ".go" {
			add(path)
		}
		return nil
	}))
	require.Greater(t, len(out), 12)
	return out
}

func TestVariablesAreKeysOfTheConfiguration(t *testing.T) {
	t.Parallel()
	keys := config.Keys(config.Reference(builtin.Doors()))
	seen := 0
	for path, text := range files(t) {
		for _, name := range regexp.MustCompile(`\bWEIR_[A-Z0-9]+(?:_[A-Z0-9]+)*__[A-Z0-9_]+\b`).FindAllString(text, -1) {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, config.Prefix), "__", "."))
			require.True(t, slices.Contains(keys, key), "%s sets %s, which is no key", path, name)
			seen++
		}
	}
	require.Greater(t, seen, 20)
}

// Every role of the stack reads the file of a run of one's own, and is else started as without it.
func TestTheStackTakesARunOfOnesOwn(t *testing.T) {
	t.Parallel()
	texts := files(t)
	services := func(path string) map[string]any {
		tree, err := yaml.Parser().Unmarshal([]byte(texts[path]))
		require.NoError(t, err)
		return tree["services"].(map[string]any)
	}
	command := func(service any) (words []string) {
		for _, w := range service.(map[string]any)["command"].([]any) {
			words = append(words, w.(string))
		}
		return words
	}
	own := services("compose.own.yaml")
	seen := 0
	for name, service := range services(filepath.Join("..", "docker-compose.yml")) {
		environment, _ := service.(map[string]any)["environment"].(map[string]any)
		if _, role := environment["WEIR_TRAINER__STEPS"]; !role {
			continue // the keys, and what is not Weir's
		}
		require.Contains(t, own, name)
		require.Equal(t, append(command(service), "--config", "/own/run.yaml"), command(own[name]))
		seen++
	}
	require.Len(t, own, seen)
}

// What the stack, the manifests and the test's small stack set must be a configuration that starts.
func TestTheConfigurationsOfTheManifestsAreValid(t *testing.T) {
	t.Parallel()
	assignment := regexp.MustCompile(`\b(WEIR_[A-Z0-9_]*__[A-Z0-9_]+)(?:=|: |, value: )"?([^\s"}]+)"?`)
	fallback := regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}?`)
	for path, text := range files(t) {
		var environ []string
		for _, m := range assignment.FindAllStringSubmatch(text, -1) {
			environ = append(environ, m[1]+"="+fallback.ReplaceAllString(m[2], "$1"))
		}
		cfg, _, err := config.Resolve(builtin.Doors(), config.Sources{Environ: environ})
		require.NoError(t, err, path)
		require.NoError(t, cfg.Finish(), path)
	}
}

func TestRulesAndDashboardNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	all, err := docs.Collectors()
	require.NoError(t, err)
	metrics := map[string]docs.Metric{}
	for _, m := range all {
		metrics[m.Name] = m
		if m.Type == "histogram" {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				metrics[m.Name+end] = m
			}
		}
	}
	use := regexp.MustCompile(`\b(weir_[a-z0-9_]+)(\{[^}]*\})?`)
	by := regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	known := []string{"le", "role", "instance", "job"} // of Prometheus and the scrape configuration
	for _, m := range all {
		known = append(known, m.Labels...)
	}
	expressions := dashboardExpressions(t)
	for _, rule := range rules(t) {
		expressions = append(expressions, rule["expr"].(string))
	}
	require.Greater(t, len(expressions), 30)
	named := map[string]bool{}
	for _, e := range expressions {
		require.Equal(t, strings.Count(e, "("), strings.Count(e, ")"), e)
		for _, m := range use.FindAllStringSubmatch(e, -1) {
			metric, ok := metrics[m[1]]
			require.True(t, ok, "%s in %s", m[1], e)
			named[metric.Name] = true
			if metric.Type == "histogram" {
				require.NotEqual(t, metric.Name, m[1], "a histogram is read by its buckets, sum and count: %s", e)
			}
			for _, label := range regexp.MustCompile(`([a-z_]+)[=!]`).FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, metric.Labels, label[1], e)
			}
		}
		for _, m := range by.FindAllStringSubmatch(e, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				require.Contains(t, known, strings.TrimSpace(label), e)
			}
		}
	}
	require.Greater(t, len(named), len(all)*9/10, "the dashboards show most of what there is")
}

func rules(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, g := range parse(t, filepath.Join("prometheus", "alerts.yml"))["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			rule := r.(map[string]any)
			require.NotEmpty(t, rule["alert"])
			require.NotEmpty(t, rule["annotations"].(map[string]any)["summary"], rule["alert"])
			require.Contains(t, []any{"critical", "warning"}, rule["labels"].(map[string]any)["severity"])
			out = append(out, rule)
		}
	}
	return out
}

// dashboardExpressions are those of every dashboard.
func dashboardExpressions(t *testing.T) (out []string) {
	t.Helper()
	boards, err := filepath.Glob(filepath.Join("grafana", "provisioning", "dashboards", "*.json"))
	require.NoError(t, err)
	require.Len(t, boards, len(dashboards.Boards()))
	source := parse(t, filepath.Join("grafana", "provisioning", "datasources", "all.yml"))["datasources"].([]any)[0].(map[string]any)
	require.Equal(t, dashboards.Source, source["uid"])
	for _, b := range dashboards.Boards() {
		written, err := os.ReadFile(filepath.Join("grafana", "provisioning", "dashboards", b.UID+".json"))
		require.NoError(t, err)
		text, err := b.JSON()
		require.NoError(t, err)
		require.Equal(t, string(text), string(written), "%s: write it again: cd internal/dashboards && go run ./generate", b.UID)
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				require.NotEmpty(t, p.Lines, "%s: %s", b.Title, p.Title)
				for _, l := range p.Lines {
					out = append(out, l.Expr)
				}
			}
		}
	}
	return out
}

// parse reads a YAML file of one document.
func parse(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	out, err := yaml.Parser().Unmarshal(data)
	require.NoError(t, err, path)
	return out
}

func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	resources := parse(t, filepath.Join("kubernetes", "kustomization.yaml"))["resources"].([]any)
	present, err := filepath.Glob(filepath.Join("kubernetes", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, resources, len(present)-1, "every manifest is listed, but for kustomization.yaml itself")
	kinds := map[string][]string{}
	var scaler map[string]any
	for _, name := range resources {
		data, err := os.ReadFile(filepath.Join("kubernetes", name.(string)))
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			object, err := yaml.Parser().Unmarshal([]byte(document))
			require.NoError(t, err, name)
			kind := object["kind"].(string)
			kinds[kind] = append(kinds[kind], object["metadata"].(map[string]any)["name"].(string))
			if kind == "ScaledObject" && object["metadata"].(map[string]any)["name"] == "producer" {
				scaler = object["spec"].(map[string]any)
			}
		}
	}
	require.Equal(t, []string{"producer", "inference"}, kinds["ScaledObject"])
	require.Equal(t, []string{"broker"}, kinds["StatefulSet"])
	require.Equal(t, []string{"trainer"}, kinds["Job"])
	require.Equal(t, []string{"inference", "producer", "tools", "archive"}, kinds["Deployment"])

	env := files(t)[filepath.Join("kubernetes", "run.env")]
	value := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(env)
		require.NotNil(t, m, name)
		return m[1]
	}
	trigger := scaler["triggers"].([]any)[0].(map[string]any)["metadata"].(map[string]any)
	require.Equal(t, value("WEIR_PRODUCER__CONCURRENCY"), trigger["lagThreshold"])
	requireConsumer(t, value("WEIR_RUN__NAME"), trigger["stream"].(string), trigger["consumer"].(string))
}

// requireConsumer asks a broker's monitoring page, as KEDA does, for the consumer that the scaling counts.
func requireConsumer(t *testing.T, run, stream, consumer string) {
	t.Helper()
	c := broker.DefaultConfig()
	c.StoreDir, c.Listen, c.Monitor, c.SyncAlways = t.TempDir(), "", "127.0.0.1:0", false
	broker, err := broker.Start(t.Context(), c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer broker.Shutdown()
	conn, err := streams.Connect(t.Context(), streams.ConnectConfig{Broker: broker}, nil)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Open(t.Context(), run, streams.DefaultTopology())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, broker.MonitorURL()+"/jsz?acc=$G&consumers=true", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var page server.JSInfo
	require.NoError(t, json.Unmarshal(body, &page))
	for _, account := range page.AccountDetails {
		for _, s := range account.Streams {
			if s.Name == stream {
				require.True(t, slices.ContainsFunc(s.Consumer, func(i *server.ConsumerInfo) bool { return i.Name == consumer }), "%s", body)
				return
			}
		}
	}
	t.Fatalf("no stream %s on the page: %s", stream, body)
}
