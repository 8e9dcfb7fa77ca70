package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ways are the names that begin the lines of docs/guarantees.md on how an episode can leave training.
func ways(t *testing.T) map[string]bool {
	t.Helper()
	_, text, found := strings.Cut(page(t, "docs/guarantees.md"), "## What a policy can keep out of training\n")
	require.True(t, found, "the page has the section")
	text, _, _ = strings.Cut(text, "\n## ")
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([a-z' ]+)`: ").FindAllStringSubmatch(text, -1) {
		require.False(t, out[m[1]], "two rows are named %s", m[1])
		out[m[1]] = true
	}
	return out
}

// A place is where code takes an episode out of training, or where it might: with how many times it does so there, and the row of the page
// that says what a policy can make of it. A test that fails here asks for a look at the new place: can text or code of the policy's come
// to it? Then close it, or count it, and write it into a row.
type place struct {
	times int
	way   string
}

// unavailable are the functions that make an error the machinery's.
var unavailable = map[string]place{
	"producers.var":                             {2, "services"}, // the errors themselves
	"producers.roomlessError.Is":                {1, "room"},
	"producers.Episode.openSessions":            {1, "opening"},
	"producers/agents/outside.agent.awaitPlace": {1, "opening"},
	"producers/agents/outside.agent.Run":        {2, "agents outside"}, "producers/agents/outside.program.runPlain": {2, "agents outside"},
	"producers/agents/outside.program.runConfined": {5, "agents outside"},
	"producers/remote.Client.callService":          {3, "services"},
	"producers/rewards/code.wrapUnavailable":       {1, "judges"}, "producers/rewards/code.readVerdict": {2, "judges"},
	"producers/sandbox.unavailableError": {1, "room"},
	"producers/sandbox/workspace.var":    {1, "closed"}, "producers/sandbox/workspace.Manager.Get": {1, "closed"},
	"producers/sandbox/workspace.Manager.keepPlace": {1, "closed"}, "producers/sandbox/workspace.closedEpisodeError": {1, "closed"},
	"producers/sandbox/workspace.Workspace.waitForEnd": {1, "sandboxes"}, "producers/sandbox/workspace.Workspace.Session": {1, "sandboxes"},
	"producers/sandbox/workspace.Workspace.sendRunner": {1, "sandboxes"},
	"producers/tools/files.tool.Call":                  {1, "closed"},
	"producers/tools.Guard.takeSlot":                   {1, "room"}, "producers/tools.Guard.awaitTurn": {1, "room"}, "producers/tools.Within": {1, "left behind"},
	"producers/tools/mcp.session.connect": {1, "mcp"}, "producers/tools/mcp.Tool.Call": {1, "closed"},
	"producers/tools/python.Tool.Call": {1, "closed"}, "producers/tools/python.Tool.Close": {1, "closed"},
	"producers/tools/shell.Tool.Call":                {1, "sandboxes"},
	"producers/tools/simulated.model.writeDocuments": {1, "services"}, "producers/tools/simulated.Tool.Call": {1, "closed"},
	"producers/tools/sqlite.Tool.Call":           {3, "closed"},
	"producers/tools/starlark.Tool.attachWorker": {2, "shared workers"},
	"producers/tools/starlark.Tool.takeWorker":   {1, "room"}, "producers/tools/starlark.Tool.startWorker": {1, "room"}, "producers/tools/starlark.Tool.Call": {2, "closed"},
	"producers/tools/starlark.session.callFunction": {1, "worlds"}, "producers/tools/starlark.var": {1, "closed"},
	"producers/tools/verltool.Tool.Call":         {1, "services"},
	"producers/toolserver.Sessions.enterSession": {1, "room"}, "producers/toolserver.session.openTools": {1, "opening"},
	"producers/toolworker.binding.findWorker": {1, "opening"}, "producers/toolworker.session.startTools": {1, "opening"},
	"producers/toolworker.Client.pauseBeforeRetry": {1, "room"}, "producers/toolworker.binding.askSession": {1, "workers"},
	"producers/toolworker.session.lookInside": {1, "workers"}, "producers/toolworker.var": {4, "workers"},
	"producers/toolworker.placed.Call":      {1, "workers"},
	"producers/toolworker.Client.sessionOf": {1, "closed"}, "producers/toolworker.remoteWorkspace.Run": {1, "workers"},
}

// dropped are the words that a producer counts episodes without a trajectory under.
var dropped = map[string]string{
	"lease_lost": "outages", "over": "outages", "cancelled": "old tokens", "drained": "outages", "not_begun": "outages", "unserved": "time before a turn",
	"failed": "other errors", "returned": "other errors", "unknown_task": "outages", "panicked": "panics",
	"uncertain_call": "dead producers' tools", "session_lost": "dead producers' tools",
	"not_recorded": "the log", "no_room": "room",
}

// unretried are the errors for which a producer closes a sample at the first failure.
var unretried = map[string]string{
	"findPanic": "panics", "errNothingSampled": "no turn", "ErrPrompt": "opening", "ErrTooLarge": "too large", "ErrInvalid": "own codec",
}

// reasons are those of the wire, by name.
var reasons = map[string]string{
	"ReasonStale": "old tokens", "ReasonMalformed": "own codec", "ReasonVersion": "own codec", "ReasonForeign": "the ticket's words",
	"ReasonOversized": "too large", "ReasonDuplicate": "outages", "ReasonPoisoned": "bounds", "ReasonIncomplete": "groups",
	"ReasonZeroVariance": "groups", "ReasonLost": "outages", "ReasonGivenUp": "groups", "ReasonUnknownTask": "outages",
}

// refused are the functions that say why a trajectory cannot be trained on.
var refused = map[string]place{
	"trainer/batch.Assembler.checkMember": {4, "bounds"}, "trainer/batch.checkAnswer": {8, "bounds"},
	"trainer/batch.checkOpening":       {2, "the ticket's words"},
	"trainer/batch.Bounds.checkMember": {5, "bounds"}, "trainer/batch.checkAgents": {4, "bounds"}, "trainer/batch.Checker": {3, "bounds"},
	"trainer/batch.checkSegment": {7, "bounds"}, "trainer/batch.checkTemperature": {2, "bounds"}, "trainer/batch.var": {1, "the ticket's words"}, "trainer/batch.openGroup.checkFork": {1, "the ticket's words"},
}

// each calls see for every declaration of the tree's own code below a folder, named by its folder and, for a function, its name.
func each(t *testing.T, below string, see func(name string, d ast.Decl)) {
	t.Helper()
	dir := root(t)
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, below), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(dir, filepath.Dir(path))
		for _, d := range f.Decls {
			see(filepath.ToSlash(folder)+"."+declared(d), d)
		}
		return err
	}))
}

// declared is a function's name, a method's with its receiver's, and else var.
func declared(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return "var"
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	return fmt.Sprint(of) + "." + fn.Name.Name
}

// called is the name of a function that a node calls, without its package; "" for another node.
func called(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

// hold compares the places that were found with those that have a row.
func hold(t *testing.T, known map[string]place, found map[string]int) {
	t.Helper()
	for name, times := range found {
		require.Equal(t, known[name].times, times, "%s: new, or changed: see whether a policy can bring it about, and give it a row of docs/guarantees.md", name)
	}
	for name := range known {
		require.Contains(t, found, name, "it is no longer there: take it out of the list")
	}
}

// The duty of the second attack: a policy must not be able to take its own failures out of training, by any way. Each place in the code that
// makes a failure the machinery's, ends a ticket without a trajectory or refuses one has a row on the page, and each row a place.
func TestEachWayOutOfTrainingHasARow(t *testing.T) {
	t.Parallel()
	rows, used := ways(t), map[string]bool{}
	use := func(way, by string) {
		require.True(t, rows[way], "%s: docs/guarantees.md has no row %q", by, way)
		used[way] = true
	}
	found := map[string]int{}
	for _, below := range []string{"producers", "streams", "trainer", "consumers", "internal"} {
		each(t, below, func(name string, d ast.Decl) {
			ast.Inspect(d, func(n ast.Node) bool {
				if name := called(n); name == "Is" || name == "Error" {
					return false // it asks what an error is, or leaves the word out
				}
				if id, ok := n.(*ast.Ident); ok && id.Name == "ErrUnavailable" {
					found[name]++
				}
				return true
			})
		})
	}
	hold(t, unavailable, found)
	refusals := map[string]int{}
	each(t, "trainer/batch", func(name string, d ast.Decl) {
		ast.Inspect(d, func(n ast.Node) bool {
			if by := called(n); by == "Errorf" || by == "New" && ofErrors(n) {
				refusals[name]++
			}
			return true
		})
	})
	for _, other := range notOfTrajectories {
		delete(refusals, other)
	}
	hold(t, refused, refusals)
	for _, list := range []map[string]place{unavailable, refused} {
		for name, p := range list {
			use(p.way, name)
		}
	}
	for name, list := range map[string]map[string]string{"dropped": dropped, "unretried": unretried, "reasons": reasons} {
		for word, way := range list {
			use(way, name+" "+word)
		}
	}
	for row := range rows {
		require.True(t, used[row], "the row %q of docs/guarantees.md is of no place", row)
	}
}

// ofErrors says whether a call is of the package errors.
func ofErrors(n ast.Node) bool {
	fn, ok := n.(*ast.CallExpr).Fun.(*ast.SelectorExpr)
	return ok && fmt.Sprint(fn.X) == "errors"
}

// notOfTrajectories make errors of other things than trajectories.
var notOfTrajectories = []string{"trainer/batch.Assembler.Take"}

// Each word that ends a ticket, and each reason of the wire, is in the lists above.
func TestEachReasonHasARow(t *testing.T) {
	t.Parallel()
	words, errs, wire := map[string]bool{}, map[string]bool{}, map[string]bool{}
	each(t, "producers", func(name string, d ast.Decl) {
		ast.Inspect(d, func(n ast.Node) bool {
			if by := called(n); by == "episodeDropped" || by == "dropReason" {
				texts(n, words)
			}
			return true
		})
		if name == "producers.dropReason" {
			texts(d, words)
		}
		if name != "producers.isUnretryable" {
			return
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch called(n) {
			case "Is":
				asked := n.(*ast.CallExpr).Args[1]
				if of, ok := asked.(*ast.SelectorExpr); ok {
					asked = of.Sel
				}
				errs[fmt.Sprint(asked)] = true
			case "findPanic":
				errs["findPanic"] = true
			}
			return true
		})
	})
	each(t, "schemas", func(_ string, d ast.Decl) {
		ast.Inspect(d, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(v.Type) == "Reason" {
				for _, name := range v.Names {
					wire[name.Name] = true
				}
			}
			return true
		})
	})
	delete(words, "") // no word
	for _, c := range []struct {
		found map[string]bool
		known map[string]string
	}{{words, dropped}, {errs, unretried}, {wire, reasons}} {
		require.Equal(t, sorted(c.known), sorted(c.found), "give what is new a row of docs/guarantees.md")
	}
}

// texts adds the texts that stand in a piece of code.
func texts(of ast.Node, to map[string]bool) {
	ast.Inspect(of, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				to[text] = true
			}
		}
		return true
	})
}

func sorted[V any](of map[string]V) []string {
	var out []string
	for name := range of {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
