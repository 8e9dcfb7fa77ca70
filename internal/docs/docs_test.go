package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// The keys of metrics.jsonl in the code and in the table are the same.
func TestEveryMetricKeyIsOnThePage(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`^(reward|staleness|batch|policy|optimizer|rejected|time|rate|queue|admission|total|eval|test|loss|critic)/[a-z_/]*$`)
	written := map[string]bool{}
	for path, text := range sources(t) {
		inLoss := strings.HasPrefix(path, "trainer/loss/")
		if !inLoss && !strings.HasPrefix(path, "trainer/") && !strings.HasPrefix(path, "internal/cli/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		require.NoError(t, err)
		if path == "trainer/loss/diagnostics.go" {
			for _, name := range keysOf(file, "OffPolicy") {
				written["off_policy/"+name] = true
			}
			continue // the rest are measures for people who ask for them, not part of a step's report
		}
		if inLoss {
			for _, name := range lossMetrics(file) {
				written["loss/"+name] = true
			}
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := literal(n); ok && key.MatchString(text) {
				written[text] = true
			}
			return true
		})
	}
	// These are shown as they happen and not written down; the other begins the keys that follow from names.
	for _, name := range []string{"time/cold_start", "loss/"} {
		require.True(t, written[name], name)
		delete(written, name)
	}
	documented := map[string]bool{}
	for _, g := range docs.Groups() {
		for _, k := range g.Keys {
			name, _, _ := strings.Cut(k.Name, "<")
			require.False(t, documented[name], "%s twice", name)
			documented[name] = true
		}
	}
	for name := range written {
		require.True(t, documented[name], "%s: say in internal/docs/keys.go what it means", name)
	}
	for name := range documented {
		require.True(t, written[name], "%s: nothing writes it", name)
	}
}

// keysOf are the literal keys that a function writes into maps.
func keysOf(file *ast.File, function string) []string {
	var names []string
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if index, ok := n.(*ast.IndexExpr); ok {
				if name, ok := literal(index.Index); ok {
					names = append(names, name)
				}
			}
			return true
		})
	}
	return names
}

// lossMetrics are the names that a loss reports: what a metrics method returns, and what is put into Metrics.
func lossMetrics(file *ast.File) []string {
	var names []string
	strings := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if text, ok := literal(n); ok {
				names = append(names, text)
			}
			return true
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "metrics" && n.Body != nil {
				strings(n.Body)
				return false
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				index, ok := left.(*ast.IndexExpr)
				if !ok {
					continue
				}
				if s, ok := index.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Metrics" {
					strings(index.Index)
				}
				if id, ok := index.X.(*ast.Ident); ok && id.Name == "m" {
					strings(index.Index)
				}
			}
		}
		return true
	})
	return names
}

func literal(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
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
