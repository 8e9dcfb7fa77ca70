// Package house holds the rules of the tree as tests.
package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weir-rl/weir/"

// leaf is a room that every other but schemas may import: it imports nothing of ours, and has the words in which settings
// are refused.
const leaf = "internal/check"

// allowed lists, for each room, the rooms it may import. The longest matching prefix speaks. The table is text, so that a new row does
// not move the others.
var allowed = parseRows(`
schemas:
streams: schemas streams
streams/streamtest: schemas streams internal
producers: schemas streams producers gpu/hf/tokenizer gpu/hf/chat internal
consumers: schemas streams consumers gpu internal
consumers/openai: schemas gpu/hf internal
trainer: schemas streams trainer gpu internal
trainer/learner: schemas gpu trainer/advantage trainer/batch trainer/loss trainer/metrics trainer/selection trainer/stats internal/check
trainer/advantage: schemas trainer/advantage trainer/stats
trainer/loss: schemas trainer/loss trainer/stats
trainer/archive/archiver: streams trainer/archive/messages
trainer/archive/messages: schemas internal/check internal/filelock
trainer/archive/messages/bucket: trainer/archive/messages
trainer/archive/messages/storetest: schemas trainer/archive/messages
trainer/metrics:
trainer/batch: schemas gpu trainer/stats
trainer/stats: schemas
trainer/admission: schemas
trainer/selection: schemas trainer/stats
trainer/relearn: schemas gpu trainer/batch trainer/checkpoint trainer/learner
trainer/shadow: schemas gpu trainer/admission trainer/batch trainer/checkpoint trainer/learner trainer/metrics trainer/relearn
trainer/branch: schemas internal/check
trainer/bias: schemas trainer/metrics
gpu: schemas gpu internal/child
internal: schemas internal
internal/check:
internal/child:
internal/filelock:
internal/plainfile:
internal/compare: schemas trainer/metrics internal
internal/turns:
internal/openai: gpu/hf/chat
internal/fakeserver: schemas gpu internal
internal/scale:
internal/tracing: schemas internal/telemetry
internal/records: internal/report internal/filelock
internal/export: schemas trainer internal
internal/rescore: producers internal
internal/recorded: schemas producers trainer internal
internal/dashboards: internal/dashboards
internal/sbom:
internal/wheel:
internal/report: schemas internal trainer/metrics
internal/audit: schemas trainer internal
internal/runfolder: schemas streams trainer gpu/hf/tokenizer internal/report internal/plainfile
internal/view: schemas streams trainer gpu/hf/tokenizer internal
internal/docs: streams producers consumers trainer internal
internal/config: schemas streams producers consumers trainer gpu internal
internal/builtin: producers gpu internal/parts internal/recorded
internal/parts: producers gpu trainer/advantage trainer/loss
examples: . schemas producers consumers trainer gpu
internal/lab: schemas streams producers consumers trainer gpu internal
internal/assembly: schemas streams producers consumers trainer gpu internal
internal/cli: schemas streams producers consumers trainer gpu internal
.: producers trainer gpu internal/assembly internal/builtin internal/cli internal/config internal/machine internal/parts internal/report
cmd: .
deploy: cmd internal
`)

// parseRows reads lines of the form "room: room room".
func parseRows(text string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		room, may, _ := strings.Cut(line, ":")
		rows[room] = strings.Fields(may)
	}
	return rows
}

// forbidden lists, for each top folder, packages below an allowed room that it may not import: an engine's own package is
// chosen by the command line, and no role knows it.
var forbidden = map[string][]string{
	"consumers": {"gpu/native"},
	"trainer":   {"gpu/native"},
	"producers": {"gpu/native"},
}

// Invariant: imports run one way, schemas <- streams <- {producers, consumers, trainer} <- cmd.
func TestInvariantImportsRunOneWay(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	var seen int
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || rel == "runs" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		// Tests may bring what they need to drive a room; the rooms themselves may not.
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		checkFile(t, path, filepath.ToSlash(filepath.Dir(rel)))
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, seen, 50, "the walk should see the whole tree")
}

func checkFile(t *testing.T, path, room string) {
	t.Helper()
	rule := ruleOf(room)
	require.NotEmpty(t, rule, "%s: no rule for this folder; add one to allowed", path)
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		target, ours := strings.CutPrefix(name+"/", module)
		if !ours {
			continue
		}
		if target = strings.TrimSuffix(target, "/"); target == "" {
			target = "." // the root package
		}
		ok := target == leaf && rule != "schemas"
		for _, a := range allowed[rule] {
			ok = ok || target == a || strings.HasPrefix(target, a+"/")
		}
		for _, f := range forbidden[strings.SplitN(room, "/", 2)[0]] {
			if target == f || strings.HasPrefix(target, f+"/") {
				t.Errorf("%s imports %s, which no file of %s may: use the interfaces of gpu", path, target, room)
			}
		}
		if kind := partOf(target); kind != "" && (rule == "internal/assembly" || rule == "internal/cli" || rule == "internal/config") {
			t.Errorf("%s imports %s: the program's parts are named in internal/builtin alone, and found through the doors", path, target)
		}
		if !ok {
			t.Errorf("%s imports %s, but %s may import only %v", path, target, rule, allowed[rule])
		}
	}
}

// partOf is the kind of part that a package is: a task, an agent, a tool or a reward; "" for any other package.
func partOf(target string) string {
	for _, kind := range []string{"producers/tasks", "producers/agents", "producers/tools", "producers/rewards"} {
		if strings.HasPrefix(target, kind+"/") {
			return kind
		}
	}
	return ""
}

func ruleOf(room string) string {
	best := ""
	for prefix := range allowed {
		if (room == prefix || strings.HasPrefix(room, prefix+"/")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return best
}

// Invariant: each of the three loops reads as one page.
func TestInvariantEachLoopReadsAsOnePage(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"trainer/run.go", "producers/run.go", "consumers/run.go"} {
		data, err := os.ReadFile(filepath.Join("..", "..", path))
		require.NoError(t, err)
		require.LessOrEqual(t, strings.Count(string(data), "\n"), 200, "%s: split the plumbing out", path)
	}
}
