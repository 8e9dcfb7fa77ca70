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
	require.Equal(t, []string{"consumers/metrics.go", "consumers/servermetrics.go", "internal/telemetry/server.go", "producers/evaluation/metrics.go", "producers/journalmetrics.go", "producers/metrics.go", "producers/toolworker/metrics.go", "trainer/archive/archiver/metrics.go", "trainer/metrics.go"}, have)
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
		if strings.HasPrefix(path, "trainer/metrics/") || !strings.HasPrefix(path, "trainer/") && !strings.HasPrefix(path, "internal/assembly/") {
			continue
		}
		for _, m := range regexp.MustCompile(`\bmetrics\.([A-Z]\w*)(\.Name\]? *(:|=[^=])|\.Of\([^\n]*?\)\] *=|\.Set\(|\.Name, Question)`).FindAllStringSubmatch(text, -1) {
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

// A collector that nothing sets would be drawn as 0 for ever, or not at all.
func TestEveryCollectorHasAWriter(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, c := range []struct {
		room, name string
		least      int
	}{
		{"consumers", "Metrics", 6},
		{"producers", "Metrics", 6},
		{"producers/evaluation", "Metrics", 2},
		{"producers/evaluation", "Account", 1},
		{"producers/toolworker", "Metrics", 7},
		{"streams/broker", "collector", 22},
		{"trainer", "Metrics", 6},
	} {
		metrics := all[c.room+"/metrics.go"]
		names := collectorFields(metrics, c.name)
		require.GreaterOrEqual(t, len(names), c.least, "collectors of %s %s", c.room, c.name)
		// A read of the server's counters is written by a call of gauge or counter, which the collector gets or makes.
		for _, name := range names {
			set := regexp.MustCompile(`(?i:metrics(\(\))?|unseen\(m\)|\b[am])\.` + name + `(\.WithLabelValues\([^\n]*\))?\.(Inc|Dec|Add|Set|Observe)\(|range m\.` + name + `\b|\b(gauge|counter)\(m\.` + name + `\b`)
			written := false
			for path, text := range all {
				written = written || strings.HasPrefix(path, c.room+"/") && set.MatchString(text)
			}
			require.True(t, written, "%s: nothing sets the collector %s", c.room, name)
		}
		// What sets a collector, in a method, must be called.
		for _, method := range regexp.MustCompile(`(?m)^func \(m \*`+c.name+`\) (\w+)\(`).FindAllStringSubmatch(metrics, -1) {
			called := regexp.MustCompile(`(?i:metrics(\(\))?|account|unseen\(m\)|\bm)\.` + method[1] + `\(`)
			require.True(t, slices.Contains([]string{"Describe", "Collect"}, method[1]) || anyCalls(all, called), "%s: nothing calls %s.%s", c.room, c.name, method[1])
		}
	}
}

// collectorFields are the fields of a struct that are collectors of Prometheus, or descriptions of them.
func collectorFields(text, name string) []string {
	collector := regexp.MustCompile(`^(prometheus\.(Counter|Gauge|Histogram)|\*prometheus\.((Counter|Gauge|Histogram)Vec|Desc)|map\[string\]prometheus\.Gauge)$`)
	declared := regexp.MustCompile(`(?ms)^type ` + name + ` struct ?\{(?:([^\n]+)\}$|(.*?)^\}$)`).FindStringSubmatch(text)
	if declared == nil {
		return nil
	}
	fields := declared[1] + declared[2]
	var names []string
	for line := range strings.Lines(fields) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !collector.MatchString(line[at+1:]) {
			continue
		}
		for name := range strings.SplitSeq(line[:at], ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// anyCalls says whether one of the sources matches.
func anyCalls(all map[string]string, what *regexp.Regexp) bool {
	for _, text := range all {
		if what.MatchString(text) {
			return true
		}
	}
	return false
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
