package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The bounds of lines and functions outside tests. Each is a ratchet: it may be tightened, and not loosened.
const (
	lineColumns       = 140
	longLinesAtMost   = 722
	functionsExpected = 4_000

	// Functions of a complexity above complexityGoal are counted; none is above complexityAtMost.
	complexityGoal       = 20
	complexityAtMost     = 38
	complexFunctionsMost = 15
)

// Lines fit a screen, and a function has few ways through it.
func TestLinesAndFunctionsStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	functions := 0
	var long, complex []string
	for name, text := range texts(t) {
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		if ast.IsGenerated(f) {
			continue
		}
		line := 0
		for text := range strings.Lines(text) {
			if line++; utf8.RuneCountInString(strings.TrimSuffix(text, "\n")) > lineColumns {
				long = append(long, fmt.Sprintf("%s:%d", name, line))
			}
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				functions++
				n := complexity(fn)
				require.LessOrEqual(t, n, complexityAtMost, "%s %s: split it by meaning", name, fn.Name.Name)
				if n > complexityGoal {
					complex = append(complex, fmt.Sprintf("%s %s %d", name, fn.Name.Name, n))
				}
			}
		}
	}
	require.Greater(t, functions, functionsExpected)
	t.Logf("functions of a complexity above %d: %d", complexityGoal, len(complex))
	require.LessOrEqual(t, len(complex), complexFunctionsMost, "split by meaning what is above %d: %v", complexityGoal, complex)
	t.Logf("%d lines of more than %d columns", len(long), lineColumns)
	require.LessOrEqual(t, len(long), longLinesAtMost, "break new lines of more than %d columns: %v", lineColumns, long)
}

// complexity is the cyclomatic complexity of a function, as gocyclo counts it.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
