package math

import (
	"errors"
	"math/big"
	"strings"
)

// errSyntax says that a text is no expression.
var errSyntax = errors.New("not an expression")

// maxTokens bounds an expression, and so how deep it is nested.
const maxTokens = 400

// scanTokens returns the tokens of an expression: numbers, names, commands without their backslash, and signs.
func scanTokens(s string) ([]string, error) {
	var out []string
	for i := 0; i < len(s); {
		c := s[i]
		from := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '~':
			i++
			continue
		case isDigit(c) || c == '.' && i+1 < len(s) && isDigit(s[i+1]):
			for i < len(s) && isDigit(s[i]) {
				i++
			}
			if i+1 < len(s) && s[i] == '.' && isDigit(s[i+1]) {
				for i++; i < len(s) && isDigit(s[i]); i++ {
				}
			} else if i < len(s) && s[i] == '.' && i+1 == len(s) {
				i++ // "5."
				out = append(out, s[from:i-1])
				continue
			}
			if i > from && s[i-1] == '.' {
				return nil, errSyntax
			}
		case c == '\\':
			i++
			for i < len(s) && isLetter(s[i]) {
				i++
			}
			if i == from+1 {
				if i == len(s) {
					return nil, errSyntax
				}
				i++
			}
		case isLetter(c):
			for i < len(s) && isLetter(s[i]) {
				i++
			}
		case c < 0x80:
			i++
		default:
			return nil, errSyntax
		}
		out = append(out, s[from:i])
		if len(out) > maxTokens {
			return nil, errSyntax
		}
	}
	return out, nil
}

// isDigit reports whether a byte is an ASCII digit.
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isLetter reports whether a byte is an ASCII letter.
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// parser reads an expression by recursive descent.
type parser struct {
	tokens []string
	at     int
	depth  int
}

// parseExpression reads a whole expression.
func parseExpression(s string) (*node, error) {
	tokens, err := scanTokens(s)
	if err != nil || len(tokens) == 0 {
		return nil, errSyntax
	}
	p := &parser{tokens: tokens}
	n, err := p.parseSum()
	if err != nil || p.at < len(p.tokens) {
		return nil, errSyntax
	}
	return n, nil
}

// peekToken returns the next token, "" at the end.
func (p *parser) peekToken() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return ""
}

// takeToken takes the next token where it is among tokens.
func (p *parser) takeToken(tokens ...string) bool {
	for _, t := range tokens {
		if p.peekToken() == t {
			p.at++
			return true
		}
	}
	return false
}

// parseSum reads a sum.
func (p *parser) parseSum() (*node, error) {
	if p.depth++; p.depth > 60 {
		return nil, errSyntax
	}
	defer func() { p.depth-- }()
	out := &node{op: add}
	for first := true; ; first = false {
		minus := false
		signs := 0
		for {
			if p.takeToken("-") {
				minus = !minus
			} else if !p.takeToken("+") {
				break
			}
			signs++
		}
		if !first && signs == 0 {
			break
		}
		if signs > 1 && first || signs > 2 {
			return nil, errSyntax
		}
		term, err := p.parseProduct()
		if err != nil {
			return nil, err
		}
		if minus {
			term = &node{op: negate, kids: []*node{term}}
		}
		out.kids = append(out.kids, term)
	}
	if len(out.kids) == 1 {
		return out.kids[0], nil
	}
	return out, nil
}

// parseProduct reads a product.
func (p *parser) parseProduct() (*node, error) {
	left, err := p.parsePower()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.takeToken("*", `\cdot`, `\times`, `\ast`):
			right, err := p.parseSigned()
			if err != nil {
				return nil, err
			}
			left = &node{op: multiply, kids: []*node{left, right}}
		case p.takeToken("/", `\div`, ":"):
			right, err := p.parseSigned()
			if err != nil {
				return nil, err
			}
			left = &node{op: divide, kids: []*node{left, right}}
		case p.beginsFactor():
			next := p.peekToken()
			right, err := p.parsePower()
			if err != nil {
				return nil, err
			}
			left, err = joinFactors(left, right, next)
			if err != nil {
				return nil, err
			}
		default:
			return left, nil
		}
	}
}

// joinFactors returns the meaning of two factors without a sign between them: a mixed number, or a product. Two numbers are neither.
func joinFactors(left, right *node, token string) (*node, error) {
	if left.op == number && left.value.IsInt() && left.value.Sign() > 0 && right.op == divide && isFraction(token) && isWhole(right.kids[0]) && isWhole(right.kids[1]) {
		return &node{op: add, kids: []*node{left, right}, name: mixed}, nil
	}
	if right.op == number || left.op == number && isDigit(token[0]) {
		return nil, errSyntax
	}
	return &node{op: multiply, kids: []*node{left, right}}, nil
}

// isFraction reports whether a token is a command for a fraction.
func isFraction(token string) bool {
	return token == `\frac` || token == `\dfrac` || token == `\tfrac` || token == `\cfrac`
}

// parseSigned reads a factor with its signs.
func (p *parser) parseSigned() (*node, error) {
	if p.takeToken("-") {
		n, err := p.parsePower()
		return &node{op: negate, kids: []*node{n}}, err
	}
	p.takeToken("+")
	return p.parsePower()
}

// beginsFactor reports whether a factor comes next.
func (p *parser) beginsFactor() bool {
	t := p.peekToken()
	if t == "" {
		return false
	}
	if _, ok := commands[t]; ok {
		return true
	}
	return isDigit(t[0]) || t[0] == '.' || isLetter(t[0]) || t == "(" || t == "[" || isFraction(t) || t == `\sqrt` || t == `\binom` || t == `\lfloor` || t == `\lceil`
}

// parsePower reads a factor with its exponent.
func (p *parser) parsePower() (*node, error) {
	base, err := p.parseFactor()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.takeToken("!"):
			base = &node{op: factorial, kids: []*node{base}}
		case p.takeToken("^"):
			e, err := p.parseArgument()
			if err != nil {
				return nil, err
			}
			return &node{op: power, kids: []*node{base, e}}, nil
		case p.peekToken() == "_":
			return nil, errSyntax // a base of digits, which is compared as text
		default:
			return base, nil
		}
	}
}

// parseArgument reads the argument of a command or an exponent: a group, or a token.
func (p *parser) parseArgument() (*node, error) {
	if p.peekToken() == "{" || p.peekToken() == "(" {
		return p.parseFactor()
	}
	if p.takeToken("-") {
		n, err := p.parseArgument()
		return &node{op: negate, kids: []*node{n}}, err
	}
	t := p.peekToken()
	if len(t) > 1 && (isDigit(t[0]) || isLetter(t[0])) && !strings.Contains(t, ".") {
		p.tokens[p.at] = t[1:] // \frac12, \sqrt3x, x^2y: a single character
		return parseAtom(t[:1])
	}
	return p.parseFactor()
}

// commands are names that stand for a value.
var commands = map[string]string{
	`\pi`: "pi", `\alpha`: "alpha", `\beta`: "beta", `\gamma`: "gamma", `\theta`: "theta", `\lambda`: "lambda", `\mu`: "mu", `\phi`: "phi", `\omega`: "omega",
	`\sigma`: "sigma", `\infty`: "infty", `\varphi`: "phi", `\delta`: "delta", `\epsilon`: "epsilon", `\rho`: "rho", `\tau`: "tau",
	`\sin`: "sin", `\cos`: "cos", `\tan`: "tan", `\cot`: "cot", `\sec`: "sec", `\csc`: "csc", `\ln`: "ln", `\log`: "log", `\exp`: "exp",
	`\arcsin`: "arcsin", `\arccos`: "arccos", `\arctan`: "arctan", `\sinh`: "sinh", `\cosh`: "cosh", `\tanh`: "tanh",
}

// parseAtom reads a number or a variable.
func parseAtom(t string) (*node, error) {
	if isDigit(t[0]) || t[0] == '.' {
		x, ok := new(big.Rat).SetString(t)
		if !ok || len(t) > 200 {
			return nil, errSyntax
		}
		return &node{op: number, value: x}, nil
	}
	if t == "infty" {
		return &node{op: infinity}, nil
	}
	return &node{op: variable, name: t}, nil
}

// parseFactor reads a factor.
func (p *parser) parseFactor() (*node, error) {
	if p.depth++; p.depth > 60 {
		return nil, errSyntax
	}
	defer func() { p.depth-- }()
	t := p.peekToken()
	if t == "" {
		return nil, errSyntax
	}
	p.at++
	switch {
	case isDigit(t[0]) || t[0] == '.':
		return parseAtom(t)
	case t == "(" || t == "{" || t == "[":
		return p.parseClosed(map[string]string{"(": ")", "{": "}", "[": "]"}[t], "")
	case t == `\lfloor`:
		return p.parseClosed(`\rfloor`, "floor")
	case t == `\lceil`:
		return p.parseClosed(`\rceil`, "ceil")
	case t == "|":
		return p.parseClosed("|", "abs")
	case isFraction(t), t == `\binom`:
		return p.parseTwoArguments(t)
	case t == `\sqrt` || t == "sqrt":
		return p.parseRoot()
	case commands[t] != "":
		return p.parseNamed(commands[t])
	case isLetter(t[0]):
		return p.parseWord(t)
	}
	return nil, errSyntax
}

// parseClosed reads an expression up to its closing bracket.
func (p *parser) parseClosed(by, name string) (*node, error) {
	n, err := p.parseSum()
	if err != nil || !p.takeToken(by) {
		return nil, errSyntax
	}
	if name != "" {
		n = &node{op: function, name: name, kids: []*node{n}}
	}
	return n, nil
}

// parseTwoArguments reads a command with two arguments.
func (p *parser) parseTwoArguments(t string) (*node, error) {
	top, err := p.parseArgument()
	if err != nil {
		return nil, err
	}
	bottom, err := p.parseArgument()
	if err != nil {
		return nil, err
	}
	if t == `\binom` {
		return &node{op: function, name: "binom", kids: []*node{top, bottom}}, nil
	}
	return &node{op: divide, kids: []*node{top, bottom}}, nil
}

// parseRoot reads a root.
func (p *parser) parseRoot() (*node, error) {
	by := &node{op: number, value: big.NewRat(2, 1)}
	if p.takeToken("[") {
		var err error
		if by, err = p.parseClosed("]", ""); err != nil {
			return nil, err
		}
	}
	n, err := p.parseArgument()
	return &node{op: root, kids: []*node{n, by}}, err
}

// parseNamed reads a constant, a variable or a function with its argument.
func (p *parser) parseNamed(name string) (*node, error) {
	if functions[name] == nil {
		return parseAtom(name)
	}
	var base, exponent *node
	var err error
	if name == "log" && p.takeToken("_") {
		if base, err = p.parseArgument(); err != nil {
			return nil, err
		}
	}
	if p.takeToken("^") {
		if exponent, err = p.parseArgument(); err != nil {
			return nil, err
		}
	}
	var of *node
	if p.peekToken() == "(" || p.peekToken() == "{" {
		of, err = p.parseFactor()
	} else {
		of, err = p.parsePower()
	}
	if err != nil {
		return nil, err
	}
	out := &node{op: function, name: name, kids: []*node{of}}
	if base != nil {
		out = &node{op: function, name: "logbase", kids: []*node{of, base}}
	}
	if exponent != nil {
		out = &node{op: power, kids: []*node{out, exponent}}
	}
	return out, nil
}

// parseWord reads a name that is written out, or a product of variables of a letter each.
func (p *parser) parseWord(t string) (*node, error) {
	switch t {
	case "pi", "infty":
		return parseAtom(t)
	case "inf", "infinity", "oo":
		return parseAtom("infty")
	}
	if functions[t] != nil && t != "abs" || t == "abs" && p.peekToken() == "(" {
		return p.parseNamed(t)
	}
	if len(t) > 4 {
		return nil, errSyntax // a word of a language
	}
	out, err := parseAtom(t[:1])
	for i := 1; i < len(t) && err == nil; i++ {
		var next *node
		next, err = parseAtom(t[i : i+1])
		out = &node{op: multiply, kids: []*node{out, next}}
	}
	return out, err
}
