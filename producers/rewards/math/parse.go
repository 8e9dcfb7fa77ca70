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

// tokens of an expression: numbers, names, commands without their backslash and signs.
func scan(s string) ([]string, error) {
	var out []string
	for i := 0; i < len(s); {
		c := s[i]
		from := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '~':
			i++
			continue
		case digit(c) || c == '.' && i+1 < len(s) && digit(s[i+1]):
			for i < len(s) && digit(s[i]) {
				i++
			}
			if i+1 < len(s) && s[i] == '.' && digit(s[i+1]) {
				for i++; i < len(s) && digit(s[i]); i++ {
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
			for i < len(s) && letter(s[i]) {
				i++
			}
			if i == from+1 {
				if i == len(s) {
					return nil, errSyntax
				}
				i++
			}
		case letter(c):
			for i < len(s) && letter(s[i]) {
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

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// parser reads an expression by recursive descent.
type parser struct {
	tokens []string
	at     int
	depth  int
}

// parse reads a whole expression.
func parse(s string) (*node, error) {
	tokens, err := scan(s)
	if err != nil || len(tokens) == 0 {
		return nil, errSyntax
	}
	p := &parser{tokens: tokens}
	n, err := p.sum()
	if err != nil || p.at < len(p.tokens) {
		return nil, errSyntax
	}
	return n, nil
}

func (p *parser) peek() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return ""
}

func (p *parser) take(tokens ...string) bool {
	for _, t := range tokens {
		if p.peek() == t {
			p.at++
			return true
		}
	}
	return false
}

func (p *parser) sum() (*node, error) {
	if p.depth++; p.depth > 60 {
		return nil, errSyntax
	}
	defer func() { p.depth-- }()
	out := &node{op: add}
	for first := true; ; first = false {
		minus := false
		signs := 0
		for {
			if p.take("-") {
				minus = !minus
			} else if !p.take("+") {
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
		term, err := p.product()
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

func (p *parser) product() (*node, error) {
	left, err := p.raised()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.take("*", `\cdot`, `\times`, `\ast`):
			right, err := p.signed()
			if err != nil {
				return nil, err
			}
			left = &node{op: multiply, kids: []*node{left, right}}
		case p.take("/", `\div`, ":"):
			right, err := p.signed()
			if err != nil {
				return nil, err
			}
			left = &node{op: divide, kids: []*node{left, right}}
		case p.begins():
			next := p.peek()
			right, err := p.raised()
			if err != nil {
				return nil, err
			}
			left, err = beside(left, right, next)
			if err != nil {
				return nil, err
			}
		default:
			return left, nil
		}
	}
}

// beside is what two factors without a sign between them mean: a mixed number, or a product. Two numbers are neither.
func beside(left, right *node, token string) (*node, error) {
	if left.op == number && left.value.IsInt() && left.value.Sign() > 0 && right.op == divide && fraction(token) && whole(right.kids[0]) && whole(right.kids[1]) {
		return &node{op: add, kids: []*node{left, right}, name: mixed}, nil
	}
	if right.op == number || left.op == number && digit(token[0]) {
		return nil, errSyntax
	}
	return &node{op: multiply, kids: []*node{left, right}}, nil
}

func fraction(token string) bool {
	return token == `\frac` || token == `\dfrac` || token == `\tfrac` || token == `\cfrac`
}

func (p *parser) signed() (*node, error) {
	if p.take("-") {
		n, err := p.raised()
		return &node{op: negate, kids: []*node{n}}, err
	}
	p.take("+")
	return p.raised()
}

// begins says whether a factor comes next.
func (p *parser) begins() bool {
	t := p.peek()
	if t == "" {
		return false
	}
	if _, ok := commands[t]; ok {
		return true
	}
	return digit(t[0]) || t[0] == '.' || letter(t[0]) || t == "(" || t == "[" || fraction(t) || t == `\sqrt` || t == `\binom` || t == `\lfloor` || t == `\lceil`
}

func (p *parser) raised() (*node, error) {
	base, err := p.factor()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.take("!"):
			base = &node{op: factorial, kids: []*node{base}}
		case p.take("^"):
			e, err := p.argument()
			if err != nil {
				return nil, err
			}
			return &node{op: power, kids: []*node{base, e}}, nil
		case p.peek() == "_":
			return nil, errSyntax // a base of digits, which is compared as text
		default:
			return base, nil
		}
	}
}

// argument is what a command or an exponent takes: a group, or one token.
func (p *parser) argument() (*node, error) {
	if p.peek() == "{" || p.peek() == "(" {
		return p.factor()
	}
	if p.take("-") {
		n, err := p.argument()
		return &node{op: negate, kids: []*node{n}}, err
	}
	t := p.peek()
	if len(t) > 1 && (digit(t[0]) || letter(t[0])) && !strings.Contains(t, ".") {
		p.tokens[p.at] = t[1:] // \frac12, \sqrt3x, x^2y: one character
		return atom(t[:1])
	}
	return p.factor()
}

// commands are names that stand for a value.
var commands = map[string]string{
	`\pi`: "pi", `\alpha`: "alpha", `\beta`: "beta", `\gamma`: "gamma", `\theta`: "theta", `\lambda`: "lambda", `\mu`: "mu", `\phi`: "phi", `\omega`: "omega",
	`\sigma`: "sigma", `\infty`: "infty", `\varphi`: "phi", `\delta`: "delta", `\epsilon`: "epsilon", `\rho`: "rho", `\tau`: "tau",
	`\sin`: "sin", `\cos`: "cos", `\tan`: "tan", `\cot`: "cot", `\sec`: "sec", `\csc`: "csc", `\ln`: "ln", `\log`: "log", `\exp`: "exp",
	`\arcsin`: "arcsin", `\arccos`: "arccos", `\arctan`: "arctan", `\sinh`: "sinh", `\cosh`: "cosh", `\tanh`: "tanh",
}

func atom(t string) (*node, error) {
	if digit(t[0]) || t[0] == '.' {
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

func (p *parser) factor() (*node, error) {
	if p.depth++; p.depth > 60 {
		return nil, errSyntax
	}
	defer func() { p.depth-- }()
	t := p.peek()
	if t == "" {
		return nil, errSyntax
	}
	p.at++
	switch {
	case digit(t[0]) || t[0] == '.':
		return atom(t)
	case t == "(" || t == "{" || t == "[":
		return p.closed(map[string]string{"(": ")", "{": "}", "[": "]"}[t], "")
	case t == `\lfloor`:
		return p.closed(`\rfloor`, "floor")
	case t == `\lceil`:
		return p.closed(`\rceil`, "ceil")
	case t == "|":
		return p.closed("|", "abs")
	case fraction(t), t == `\binom`:
		return p.two(t)
	case t == `\sqrt` || t == "sqrt":
		return p.root()
	case commands[t] != "":
		return p.named(commands[t])
	case letter(t[0]):
		return p.word(t)
	}
	return nil, errSyntax
}

func (p *parser) closed(by, name string) (*node, error) {
	n, err := p.sum()
	if err != nil || !p.take(by) {
		return nil, errSyntax
	}
	if name != "" {
		n = &node{op: function, name: name, kids: []*node{n}}
	}
	return n, nil
}

func (p *parser) two(t string) (*node, error) {
	top, err := p.argument()
	if err != nil {
		return nil, err
	}
	bottom, err := p.argument()
	if err != nil {
		return nil, err
	}
	if t == `\binom` {
		return &node{op: function, name: "binom", kids: []*node{top, bottom}}, nil
	}
	return &node{op: divide, kids: []*node{top, bottom}}, nil
}

func (p *parser) root() (*node, error) {
	by := &node{op: number, value: big.NewRat(2, 1)}
	if p.take("[") {
		var err error
		if by, err = p.closed("]", ""); err != nil {
			return nil, err
		}
	}
	n, err := p.argument()
	return &node{op: root, kids: []*node{n, by}}, err
}

// named is a constant, a variable or a function with its argument.
func (p *parser) named(name string) (*node, error) {
	if functions[name] == nil {
		return atom(name)
	}
	var base, exponent *node
	var err error
	if name == "log" && p.take("_") {
		if base, err = p.argument(); err != nil {
			return nil, err
		}
	}
	if p.take("^") {
		if exponent, err = p.argument(); err != nil {
			return nil, err
		}
	}
	var of *node
	if p.peek() == "(" || p.peek() == "{" {
		of, err = p.factor()
	} else {
		of, err = p.raised()
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

// word is a name that is written out, or a product of variables of a letter each.
func (p *parser) word(t string) (*node, error) {
	switch t {
	case "pi", "infty":
		return atom(t)
	case "inf", "infinity", "oo":
		return atom("infty")
	}
	if functions[t] != nil && t != "abs" || t == "abs" && p.peek() == "(" {
		return p.named(t)
	}
	if len(t) > 4 {
		return nil, errSyntax // a word of a language
	}
	out, err := atom(t[:1])
	for i := 1; i < len(t) && err == nil; i++ {
		var next *node
		next, err = atom(t[i : i+1])
		out = &node{op: multiply, kids: []*node{out, next}}
	}
	return out, err
}
