package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
)

// mutant is a change of a file: the bytes from begin to end become text.
type mutant struct {
	file       string
	begin, end int
	text       string
	line       int
	what       string
}

// changedSource is the file's source with the change made.
func (m mutant) changedSource() ([]byte, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	return slices.Concat(source[:m.begin], []byte(m.text), source[m.end:]), nil
}

// swappedOperators are the operators that take each other's place.
func swappedOperators() map[token.Token][]token.Token {
	return map[token.Token][]token.Token{
		token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
		token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
		token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
		token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	}
}

// finder gathers the mutants of a file.
type finder struct {
	file   string
	set    *token.FileSet
	source []byte
	found  []mutant
}

// mutantsOf lists every mutant of a file. Test files and generated files have none.
func mutantsOf(file string) ([]mutant, error) {
	if strings.HasSuffix(file, "_test.go") {
		return nil, nil
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(parsed) {
		return nil, nil
	}
	f := &finder{file: file, set: set, source: source}
	for _, d := range parsed.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
			ast.Inspect(fn.Body, f.visitNode)
		}
	}
	return f.found, nil
}

// visitNode looks at one node. It does not go into the words of a message, for no test should hold its words.
func (f *finder) visitNode(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		return !makesMessage(n)
	case *ast.BinaryExpr:
		for _, op := range swappedOperators()[n.Op] {
			f.addMutant(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.String(), fmt.Sprintf("%s becomes %s", n.Op, op))
		}
	case *ast.IfStmt:
		f.addMutant(n.Cond.Pos(), n.Cond.End(), "!("+f.sourceText(n.Cond)+")", "the condition is negated")
	case *ast.BlockStmt:
		f.findStatements(n.List)
	case *ast.CaseClause:
		f.findStatements(n.Body)
	case *ast.CommClause:
		f.findStatements(n.Body)
	case *ast.BasicLit:
		if n.Kind == token.INT {
			f.addMutant(n.Pos(), n.End(), "("+n.Value+"+1)", n.Value+" becomes one more")
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			f.addMutant(n.Pos(), n.End(), other, n.Name+" becomes "+other)
		}
	}
	return true
}

// findStatements lists the mutants that lack a statement, where the rest still compiles.
func (f *finder) findStatements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, is := s.X.(*ast.CallExpr); is && makesMessage(call) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.IncDecStmt, *ast.BranchStmt, *ast.SendStmt:
		default:
			continue
		}
		f.addMutant(s.Pos(), s.End(), "", "is left out: "+f.sourceText(s))
	}
}

// makesMessage says that a call makes a message for people.
func makesMessage(call *ast.CallExpr) bool {
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	switch selector.Sel.Name {
	case "Errorf", "Sprintf", "Debug", "Info", "Warn", "Error", "New":
		return true
	}
	return false
}

func (f *finder) sourceText(n ast.Node) string {
	return string(f.source[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

func (f *finder) addMutant(begin, end token.Pos, text, what string) {
	from := f.set.Position(begin)
	f.found = append(f.found, mutant{
		file: f.file, begin: from.Offset, end: f.set.Position(end).Offset, text: text, line: from.Line,
		what: strings.Join(strings.Fields(what), " "),
	})
}
