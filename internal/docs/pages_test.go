package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// pages are the Markdown files for users, by path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	dir := root(t)
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			rel, err := filepath.Rel(dir, path)
			require.NoError(t, err)
			out[filepath.ToSlash(rel)] = string(data)
		}
	}
	require.Contains(t, out, "README.md")
	return out
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, ok := pages(t)[name]
	require.True(t, ok, "%s is there", name)
	return text
}

// A promise without the test that holds it is no promise.
func TestEveryTestNamedInGuaranteesExists(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(page(t, "docs/guarantees.md"), "\n", " ")
	named := regexp.MustCompile("`(?:([a-z/]+)\\.)?((?:Test|Fuzz)[A-Za-z0-9_]+)`(?: \\(`([a-z/]+)`\\))?").FindAllStringSubmatch(text, -1)
	require.Greater(t, len(named), 250)
	for _, m := range named {
		folder := m[1] + m[3] // `streams.TestX`, or `TestX` (`streams`)
		require.NotEmpty(t, folder, "write of which package %s is", m[2])
		require.Contains(t, testsOf(t, folder), m[2], folder)
	}
	suite, err := os.ReadFile(filepath.Join(root(t), "streams", "streamtest", "suite.go"))
	require.NoError(t, err)
	cases := 0
	for _, m := range regexp.MustCompile(`[Ss]uite ("[^"]+"(?:, "[^"]+")*)`).FindAllStringSubmatch(text, -1) {
		for _, c := range regexp.MustCompile(`"[^"]+"`).FindAllString(m[1], -1) {
			require.Contains(t, string(suite), "{"+strings.Join(strings.Fields(c), " ")+",", "the suite has this case")
			cases++
		}
	}
	require.Greater(t, cases, 10)
}

// testsOf are the names of a package's tests and fuzz targets.
func testsOf(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	var names []string
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// Every symptom of the page is a heading in code marks, with … for what differs; its parts are in the source.
func TestErrorsQuotedInTroubleshootingExist(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for path, text := range sources(t) {
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					all.WriteString(text + "\n")
				}
			}
			return true
		})
	}
	// The operating system, the Go runtime and the client library say these.
	foreign := []string{"bind: address already in use", "no such file or directory"}
	literals := all.String() + strings.Join(foreign, "\n")
	quoted := regexp.MustCompile("(?m)^### `(.+)`$").FindAllStringSubmatch(page(t, "docs/troubleshooting.md"), -1)
	require.Greater(t, len(quoted), 12)
	for _, m := range quoted {
		for part := range strings.SplitSeq(m[1], "…") {
			if part = strings.Trim(part, " :;,"); len(part) > 2 {
				if !strings.Contains(literals, part) {
					t.Errorf("nothing says %q, of %q", part, m[1])
				}
			}
		}
	}
}

// Keys, variables and flags that a page names are the configuration's.
func TestKeysNamedInPagesExist(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	top := map[string]bool{}
	cfg := config.Reference(builtin.Doors())
	for _, key := range slices.Concat(config.Keys(cfg), config.Keys(config.Named()), slices.Collect(maps.Keys(cfg.Others()))) {
		key = strings.TrimSuffix(key, ".*")
		for at := key; at != ""; at = at[:max(0, strings.LastIndex(at, "."))] {
			keys[at] = true
		}
		section, _, _ := strings.Cut(key, ".")
		top[section] = true
	}
	dotted := regexp.MustCompile("`([a-z]+\\.[a-z0-9_.]+)(?:=[^`]*| [^`]*)?`")
	variable := regexp.MustCompile(`\bWEIR_[A-Z0-9]+(?:_[A-Z0-9]+)*__[A-Z0-9_]+\b`)
	file := regexp.MustCompile(`\.(go|jsonl?|safetensors|yaml|conf)$`)
	flag := regexp.MustCompile(`--([a-z]+\.[a-z0-9_.]*[a-z0-9_])`)
	theirs := regexp.MustCompile(`(?m)^\| [^|]* \|`) // the first column of a table
	seen := 0
	for path, text := range pages(t) {
		if path == "docs/coming-from.md" {
			text = theirs.ReplaceAllString(text, "|") // it has the keys of other trainers
		}
		var names []string
		for _, m := range append(dotted.FindAllStringSubmatch(text, -1), flag.FindAllStringSubmatch(text, -1)...) {
			names = append(names, m[1])
		}
		for _, name := range variable.FindAllString(text, -1) {
			names = append(names, strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, config.Prefix), "__", ".")))
		}
		for _, name := range names {
			section, _, _ := strings.Cut(name, ".")
			if !top[section] || file.MatchString(name) {
				continue
			}
			require.True(t, keys[name], "%s names %s, which is no key", path, name)
			seen++
		}
	}
	require.Greater(t, seen, 200)
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	for path, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(root(t), filepath.Dir(path), filepath.FromSlash(m[1])))
			require.NoError(t, err, "%s links to %s", path, m[1])
		}
	}
}
