package starlark

import (
	"go.starlark.net/syntax"
)

// noSingleCall is the observation of a cell that is not a single call, where cells must be.
const noSingleCall = "want a single call with plain arguments , such as name ( 7 )"

// isSingleCall reports whether statements are a single call, of a name or of an attribute of a name, with plain arguments.
func isSingleCall(statements []syntax.Stmt) bool {
	if len(statements) != 1 {
		return false
	}
	statement, ok := statements[0].(*syntax.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*syntax.CallExpr)
	if !ok {
		return false
	}
	called := call.Fn
	if of, ok := called.(*syntax.DotExpr); ok {
		called = of.X
	}
	return isName(called) && arePlain(call.Args)
}

// arePlain reports whether expressions are literals, lists and dictionaries of them, or names; the value of an earlier cell is no name.
func arePlain(all []syntax.Expr) bool {
	for _, e := range all {
		if !isPlain(e) {
			return false
		}
	}
	return true
}

func isPlain(e syntax.Expr) bool {
	switch e := e.(type) {
	case *syntax.Literal:
		return true
	case *syntax.Ident:
		return e.Name != lastValue
	case *syntax.UnaryExpr:
		_, number := e.X.(*syntax.Literal)
		return e.Op == syntax.MINUS && number
	case *syntax.ListExpr:
		return arePlain(e.List)
	case *syntax.DictExpr:
		return arePlain(e.List)
	case *syntax.DictEntry:
		return isPlain(e.Key) && isPlain(e.Value)
	}
	return false
}
