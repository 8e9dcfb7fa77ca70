package metrics_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Each key that metrics.jsonl can have is in a group, by which docs/metrics.md describes it.
func TestEveryKeyIsInAGroup(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	for _, g := range metrics.Groups() {
		for _, k := range g.Keys {
			require.False(t, described[k.Name], "%s is in two groups", k.Name)
			described[k.Name] = true
		}
	}
	var declarations []ast.Decl
	for _, name := range []string{"keys.go", "bias.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		declarations = append(declarations, file.Decls...)
	}
	declared := 0
	for _, d := range declarations {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.VAR || strings.Contains(block.Doc.Text(), "not written to metrics.jsonl") {
			continue
		}
		for _, spec := range block.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				name, err := strconv.Unquote(value.(*ast.CompositeLit).Elts[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				require.True(t, described[name], "%s is in no group", name)
				declared++
			}
		}
	}
	require.Greater(t, declared, 50)
}
