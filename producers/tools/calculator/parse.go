package calculator

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of an expression.
const (
	maxText  = 4096
	maxDepth = 100
)

// Evaluate works an expression out: + - * / // % ^ (or **), parentheses, decimals, and the functions of the package. // rounds down, and %
// is the remainder. ^ binds most tightly and to the right.
func Evaluate(text string) (string, error) { return evaluateUntil(context.Background(), text) }

// evaluateUntil is Evaluate until ctx ends.
func evaluateUntil(ctx context.Context, text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("the expression is longer than %d bytes", maxText)
	}
	p := &parser{ctx: ctx, text: spelling.Replace(text)}
	p.nextToken()
	if p.token == "" {
		return "", errors.New("there is no expression")
	}
	n, err := p.parseSum()
	if err != nil {
		return "", err
	}
	if p.token != "" {
		return "", fmt.Errorf("%q was not expected", p.token)
	}
	return n.String(), nil
}

// spelling replaces the signs that people and models write.
var spelling = strings.NewReplacer("×", "*", "⋅", "*", "·", "*", "÷", "/", "−", "-", "–", "-", "**", "^")

// parser reads tokens; token is the next token, "" at the end.
type parser struct {
	ctx   context.Context //nolint:containedctx // a parser lives for a call
	text  string
	token string
	depth int
}

// nextToken reads the next token.
func (p *parser) nextToken() {
	p.text = strings.TrimSpace(p.text)
	n := 0
	switch r, size := utf8.DecodeRuneInString(p.text); {
	case size == 0:
	case unicode.IsDigit(r) || r == '.':
		n = numberEnd(p.text)
	case unicode.IsLetter(r):
		n = len(p.text) - len(strings.TrimLeftFunc(p.text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }))
	case strings.HasPrefix(p.text, "//"):
		n = 2
	default:
		n = size
	}
	p.token, p.text = p.text[:n], p.text[n:]
}

// numberEnd is where a decimal with an exponent ends. 2e is 2 and then e.
func numberEnd(text string) int {
	digits := func(i int) int {
		for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '_') {
			i++
		}
		return i
	}
	i := digits(0)
	if i < len(text) && text[i] == '.' {
		i = digits(i + 1)
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		j := i + 1
		if j < len(text) && (text[j] == '+' || text[j] == '-') {
			j++
		}
		if end := digits(j); end > j {
			i = end
		}
	}
	return max(i, 1)
}

// parseLeft reads operands joined by operators of the same level, from the left.
func (p *parser) parseLeft(operand func() (number, error), operators ...string) (number, error) {
	a, err := operand()
	for err == nil {
		op := ""
		for _, o := range operators {
			if p.token == o {
				op = o
			}
		}
		if op == "" {
			return a, nil
		}
		p.nextToken()
		var b number
		if b, err = operand(); err == nil {
			a, err = p.applyWithin(op, a, b)
		}
	}
	return number{}, err
}

// parseSum reads a sum.
func (p *parser) parseSum() (number, error) {
	if p.depth++; p.depth > maxDepth {
		return number{}, fmt.Errorf("the expression is nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	return p.parseLeft(p.parseProduct, "+", "-")
}

// parseProduct reads a product.
func (p *parser) parseProduct() (number, error) {
	return p.parseLeft(p.parseSigned, "*", "/", "//", "%")
}

// parseSigned reads an operand with its signs.
func (p *parser) parseSigned() (number, error) {
	negative := false
	for p.token == "-" || p.token == "+" {
		negative = negative != (p.token == "-")
		p.nextToken()
	}
	n, err := p.parsePower()
	if err == nil && negative {
		n = n.negate()
	}
	return n, err
}

// parsePower reads an operand with its exponent.
func (p *parser) parsePower() (number, error) {
	if p.depth++; p.depth > maxDepth {
		return number{}, fmt.Errorf("the expression is nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	base, err := p.parseOperand()
	if err != nil || p.token != "^" {
		return base, err
	}
	p.nextToken()
	exponent, err := p.parseSigned()
	if err != nil {
		return number{}, err
	}
	return p.applyWithin("^", base, exponent)
}

// applyWithin applies an operator unless the time is over: numbers of the greatest size take milliseconds.
func (p *parser) applyWithin(op string, a, b number) (number, error) {
	if err := p.ctx.Err(); err != nil {
		return number{}, err
	}
	return applyOperator(op, a, b)
}

// parseOperand reads a number, a name or an expression in parentheses.
func (p *parser) parseOperand() (number, error) {
	token := p.token
	p.nextToken()
	first, _ := utf8.DecodeRuneInString(token)
	switch {
	case token == "":
		return number{}, errors.New("the expression ends where a number should be")
	case token == "(":
		n, err := p.parseSum()
		if err == nil {
			err = p.expectToken(")")
		}
		return n, err
	case unicode.IsDigit(first) || first == '.':
		return parseDecimal(token)
	case unicode.IsLetter(first):
		return p.parseNamed(token)
	}
	return number{}, fmt.Errorf("%q was not expected: a number should be there", token)
}

// expectToken reads a token that must come next.
func (p *parser) expectToken(token string) error {
	if p.token != token {
		if p.token == "" {
			return fmt.Errorf("the expression ends where %q should be", token)
		}
		return fmt.Errorf("%q was not expected: %q should be there", p.token, token)
	}
	p.nextToken()
	return nil
}

// maxExponent bounds e in a decimal.
const maxExponent = 10_000

// parseDecimal reads a decimal number.
func parseDecimal(token string) (number, error) {
	if _, exponent, ok := strings.Cut(strings.ToLower(token), "e"); ok {
		if n, valid := new(big.Int).SetString(strings.TrimPrefix(exponent, "+"), 10); !valid || !n.IsInt64() || n.Int64() > maxExponent || n.Int64() < -maxExponent {
			return number{}, fmt.Errorf("the exponent of %.40s is not between -%d and %d", token, maxExponent, maxExponent)
		}
	}
	r, ok := new(big.Rat).SetString(strings.ReplaceAll(token, "_", ""))
	if !ok {
		return number{}, fmt.Errorf("%q is not a number", token)
	}
	return numberFromRat(r)
}

// parseNamed reads a constant, or a function with its arguments in parentheses.
func (p *parser) parseNamed(name string) (number, error) {
	name = strings.ToLower(name)
	if constant, ok := constants[name]; ok {
		return number{rounded: constant}, nil
	}
	f, ok := functions[name]
	if !ok {
		return number{}, fmt.Errorf("%q is not known: there are %s", name, known)
	}
	if err := p.expectToken("("); err != nil {
		return number{}, err
	}
	var args []number
	for p.token != ")" {
		n, err := p.parseSum()
		if err != nil {
			return number{}, err
		}
		if args = append(args, n); p.token != "," {
			break
		}
		p.nextToken()
	}
	if err := p.expectToken(")"); err != nil {
		return number{}, err
	}
	if len(args) < f.least || len(args) > f.most {
		return number{}, fmt.Errorf("%s takes %s", name, f.countArguments())
	}
	if err := p.ctx.Err(); err != nil {
		return number{}, err
	}
	n, err := f.of(args)
	if err != nil {
		return number{}, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}
