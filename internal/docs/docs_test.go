package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/docs"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/trainer"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := docs.Root()
	require.NoError(t, err)
	return dir
}

func TestGeneratedPagesAreFresh(t *testing.T) {
	t.Parallel()
	dir := root(t)
	for name, page := range docs.Pages(dir) {
		want, err := page()
		require.NoError(t, err)
		have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "%s is stale: go generate ./internal/docs", name)
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	t.Parallel()
	reg := telemetry.NewRegistry("v", "c")
	_, err := trainer.NewMetrics(reg)
	require.NoError(t, err)
	_, err = producers.NewMetrics(reg)
	require.NoError(t, err)
	_, err = consumers.NewMetrics(reg)
	require.NoError(t, err)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)

	all, err := docs.Collectors()
	require.NoError(t, err)
	require.Greater(t, len(all), 40)
	own := regexp.MustCompile(`^weir_[a-z0-9_]+$`)
	seen := map[string]bool{}
	for _, m := range all {
		require.Regexp(t, own, m.Name)
		require.Equal(t, m.Type == "counter", strings.HasSuffix(m.Name, "_total"), m.Name)
		require.False(t, seen[m.Name], "%s twice", m.Name)
		seen[m.Name] = true
	}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			require.True(t, seen[f.GetName()], "%s is on the page", f.GetName())
		}
	}
}

// Whoever adds collectors elsewhere must add them to docs.Collectors, or docs/metrics.md would not know them.
func TestEveryPackageWithCollectorsIsOnThePage(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`\.New(Counter|Gauge|Histogram|Summary)(Vec|Func)?\(`)
	var have []string
	for path, text := range sources(t) {
		if strings.Contains(text, "client_golang/prometheus") && made.MatchString(text) {
			have = append(have, path)
		}
	}
	slices.Sort(have)
	require.Equal(t, []string{"consumers/metrics.go", "internal/telemetry/server.go", "producers/metrics.go", "trainer/metrics.go"}, have)
}

func TestAdvicesNameMetricsAndKeysThatExist(t *testing.T) {
	t.Parallel()
	all, err := docs.Collectors()
	require.NoError(t, err)
	for _, a := range docs.Advices() {
		for _, name := range regexp.MustCompile(`weir_[a-z_]+`).FindAllString(a.See+a.Means+a.Do, -1) {
			require.True(t, slices.ContainsFunc(all, func(m docs.Metric) bool { return m.Name == name }), "%s", name)
		}
	}
}

// A key that nothing writes would stand on the page, and in a dashboard, and stay at 0.
func TestEveryMetricKeyHasAWriter(t *testing.T) {
	t.Parallel()
	written := map[string]bool{}
	for path, text := range sources(t) {
		if strings.HasPrefix(path, "trainer/metrics/") || !strings.HasPrefix(path, "trainer/") && !strings.HasPrefix(path, "internal/cli/") {
			continue
		}
		for _, m := range regexp.MustCompile(`\bmetrics\.([A-Z]\w*)(\.Name\]? *(:|=[^=])|\.Of\([^\n]*?\)\] *=|\.Set\(|\.Name, question)`).FindAllStringSubmatch(text, -1) {
			written[m[1]] = true
		}
	}
	declared := regexp.MustCompile(`(?m)^\t([A-Z]\w*)\s+= Key\{"([^"]+)"`).FindAllStringSubmatch(sources(t)["trainer/metrics/keys.go"], -1)
	require.Greater(t, len(declared), 50)
	names := map[string]bool{}
	for _, d := range declared {
		require.True(t, written[d[1]], "%s: nothing writes %s", d[1], d[2])
		require.False(t, names[d[2]], "%s twice", d[2])
		names[d[2]] = true
	}
	literal := regexp.MustCompile(`"(reward|staleness|batch|policy|optimizer|rejected|time|rate|queue|admission|total|eval|test|loss|critic|off_policy|cold_start|gather)/[a-z_/]*"`)
	for path, text := range sources(t) {
		if strings.HasPrefix(path, "trainer/") && !strings.HasPrefix(path, "trainer/metrics/") || strings.HasPrefix(path, "internal/") {
			require.Empty(t, literal.FindAllString(text, -1), "%s: use the keys of trainer/metrics", path)
		}
	}
}

// A collector that nothing sets would be drawn as 0 for ever.
func TestEveryCollectorHasAWriter(t *testing.T) {
	t.Parallel()
	collector := regexp.MustCompile(`^(prometheus\.(Counter|Gauge|Histogram)|\*prometheus\.(Counter|Gauge|Histogram)Vec|map\[string\]prometheus\.Gauge)$`)
	all := sources(t)
	for _, room := range []string{"consumers", "producers", "trainer"} {
		text := all[room+"/metrics.go"]
		begins := strings.Index(text, "type Metrics struct {")
		require.GreaterOrEqual(t, begins, 0, room)
		fields, _, _ := strings.Cut(text[begins:], "\n}\n")
		found := 0
		for line := range strings.Lines(fields) {
			at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
			line = strings.TrimSpace(line)
			if at < 0 || !collector.MatchString(line[at+1:]) {
				continue
			}
			for name := range strings.SplitSeq(line[:at], ",") {
				found++
				name = strings.TrimSpace(name)
				set := regexp.MustCompile(`\.` + name + `(\.WithLabelValues\([^\n]*\))?\.(Inc|Dec|Add|Set|Observe)\(|range \w+\.` + name + `\b`)
				written := false
				for path, text := range all {
					written = written || strings.HasPrefix(path, room+"/") && set.MatchString(text)
				}
				require.True(t, written, "%s: nothing sets the collector %s", room, name)
			}
		}
		require.Greater(t, found, 5, room)
	}
}

// sources are the module's Go files that are not tests, by path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	dir := root(t)
	require.NoError(t, docs.GoFiles(dir, func(path string) error {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		out[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	require.Greater(t, len(out), 100)
	return out
}
