package math

import (
	"math"
	"math/big"
	"math/cmplx"
)

// node is a part of an expression.
type node struct {
	op   op
	kids []*node
	// value is a number's; name a variable's.
	value *big.Rat
	name  string
}

type op int

const (
	number op = iota
	variable
	add
	negate
	multiply
	divide
	power
	root // of kids[0], by kids[1]
	function
	factorial
	infinity
)

// maxExponent bounds the exponents that are worked out exactly.
const maxExponent = 512

// exactValue returns the value of an expression of numbers alone, without roots; ok is false for any other.
func (n *node) exactValue() (x *big.Rat, ok bool) {
	var at []*big.Rat
	for _, k := range n.kids {
		x, ok := k.exactValue()
		if !ok {
			return nil, false
		}
		at = append(at, x)
	}
	switch n.op {
	case number:
		return n.value, true
	case add:
		sum := new(big.Rat)
		for _, x := range at {
			sum.Add(sum, x)
		}
		return sum, true
	case negate:
		return new(big.Rat).Neg(at[0]), true
	case multiply:
		product := big.NewRat(1, 1)
		for _, x := range at {
			product.Mul(product, x)
		}
		return product, true
	case divide:
		if at[1].Sign() == 0 {
			return nil, false
		}
		return new(big.Rat).Quo(at[0], at[1]), true
	case power:
		return exactPower(at[0], at[1])
	case factorial:
		if !at[0].IsInt() || at[0].Sign() < 0 || at[0].Cmp(big.NewRat(170, 1)) > 0 {
			return nil, false
		}
		return new(big.Rat).SetInt(new(big.Int).MulRange(1, max(1, at[0].Num().Int64()))), true
	}
	return nil, false
}

func exactPower(base, exponent *big.Rat) (*big.Rat, bool) {
	if !exponent.IsInt() || !exponent.Num().IsInt64() || base.Num().BitLen()+base.Denom().BitLen() > 256 {
		return nil, false
	}
	e := exponent.Num().Int64()
	if e > maxExponent || e < -maxExponent || e < 0 && base.Sign() == 0 {
		return nil, false
	}
	n := big.NewInt(max(e, -e))
	top, bottom := new(big.Int).Exp(base.Num(), n, nil), new(big.Int).Exp(base.Denom(), n, nil)
	if e < 0 {
		top, bottom = bottom, top
	}
	return new(big.Rat).SetFrac(top, bottom), true
}

// valueAt returns the value of an expression where its variables have values; NaN where it has none.
func (n *node) valueAt(values map[string]complex128) complex128 {
	if len(n.kids) == 0 {
		switch n.op {
		case number:
			x, _ := n.value.Float64()
			return complex(x, 0)
		case variable:
			return values[n.name]
		}
		return cmplx.NaN()
	}
	x := n.kids[0].valueAt(values)
	switch n.op {
	case add:
		for _, k := range n.kids[1:] {
			x += k.valueAt(values)
		}
		return x
	case negate:
		return -x
	case multiply:
		for _, k := range n.kids[1:] {
			x *= k.valueAt(values)
		}
		return x
	case divide:
		return x / n.kids[1].valueAt(values)
	case power:
		return powerOf(x, n.kids[1].valueAt(values))
	case root:
		return rootOf(x, n.kids[1].valueAt(values))
	case factorial:
		if imag(x) != 0 {
			return cmplx.NaN()
		}
		return complex(math.Gamma(real(x)+1), 0)
	}
	return n.callFunction(x, values)
}

// powerOf returns x to the power e.
func powerOf(x, e complex128) complex128 {
	if imag(x) == 0 && imag(e) == 0 && (real(x) >= 0 || real(e) == math.Trunc(real(e))) {
		return complex(math.Pow(real(x), real(e)), 0)
	}
	return cmplx.Pow(x, e)
}

// rootOf returns the real root of a real number where there is any.
func rootOf(x, by complex128) complex128 {
	switch {
	case by == 2 && imag(x) == 0 && real(x) >= 0:
		return complex(math.Sqrt(real(x)), 0)
	case by == 2:
		return cmplx.Sqrt(x)
	case by == 3 && imag(x) == 0:
		return complex(math.Cbrt(real(x)), 0)
	}
	return powerOf(x, 1/by)
}

// functions of a single argument.
var functions = map[string]func(complex128) complex128{
	"sin": cmplx.Sin, "cos": cmplx.Cos, "tan": cmplx.Tan, "cot": cmplx.Cot, "ln": cmplx.Log, "log": cmplx.Log10, "exp": cmplx.Exp,
	"sec": func(x complex128) complex128 { return 1 / cmplx.Cos(x) }, "csc": func(x complex128) complex128 { return 1 / cmplx.Sin(x) },
	"arcsin": cmplx.Asin, "arccos": cmplx.Acos, "arctan": cmplx.Atan, "sinh": cmplx.Sinh, "cosh": cmplx.Cosh, "tanh": cmplx.Tanh,
	"abs":   func(x complex128) complex128 { return complex(cmplx.Abs(x), 0) },
	"floor": func(x complex128) complex128 { return complex(math.Floor(real(x)), 0) },
	"ceil":  func(x complex128) complex128 { return complex(math.Ceil(real(x)), 0) },
}

// callFunction returns the value of a function at x.
func (n *node) callFunction(x complex128, values map[string]complex128) complex128 {
	switch n.name {
	case "logbase": // of kids[0] to the base kids[1]
		return cmplx.Log(x) / cmplx.Log(n.kids[1].valueAt(values))
	case "binom":
		k := n.kids[1].valueAt(values)
		if imag(x) != 0 || imag(k) != 0 {
			return cmplx.NaN()
		}
		return complex(math.Gamma(real(x)+1)/math.Gamma(real(k)+1)/math.Gamma(real(x-k)+1), 0)
	}
	return functions[n.name](x)
}

// addVariables adds the names of an expression's variables.
func (n *node) addVariables(into map[string]bool) {
	if n.op == variable {
		into[n.name] = true
	}
	for _, k := range n.kids {
		k.addVariables(into)
	}
}

// isLiteral reports whether an expression is a single number as numbers are written: with a sign, as a fraction of two whole numbers, as a
// mixed number, or times a power of ten. It is a number that was worked out, and no sum that is left to do.
func (n *node) isLiteral() bool {
	switch n.op {
	case number:
		return true
	case negate:
		return n.kids[0].isLiteral() && n.kids[0].op != negate
	case divide:
		return isWhole(n.kids[0]) && isWhole(n.kids[1])
	case add: // the parser makes it of a mixed number alone
		return n.name == mixed
	case multiply:
		return len(n.kids) == 2 && n.kids[0].op == number && isPowerOfTen(n.kids[1])
	case power:
		return isPowerOfTen(n)
	}
	return false
}

// mixed is the name of the sum that a mixed number is.
const mixed = "mixed"

// isWhole reports whether an expression is a whole number.
func isWhole(n *node) bool {
	if n.op == negate {
		n = n.kids[0]
	}
	return n.op == number && n.value.IsInt()
}

// isPowerOfTen reports whether an expression is a power of ten.
func isPowerOfTen(n *node) bool {
	return n.op == power && n.kids[0].op == number && n.kids[0].value.Cmp(big.NewRat(10, 1)) == 0 && isWhole(n.kids[1])
}

// isReduced reports whether a fraction cannot be shortened, and is no whole number.
func (n *node) isReduced() bool {
	if n.op == negate {
		return n.kids[0].isReduced()
	}
	if n.name == mixed {
		return n.kids[1].isReduced()
	}
	if n.op != divide {
		return true
	}
	top, ok := n.kids[0].exactValue()
	bottom, ok2 := n.kids[1].exactValue()
	if !ok || !ok2 || bottom.Sign() == 0 {
		return false
	}
	one := new(big.Int).GCD(nil, nil, new(big.Int).Abs(top.Num()), new(big.Int).Abs(bottom.Num()))
	return one.Cmp(big.NewInt(1)) == 0 && new(big.Int).Abs(bottom.Num()).Cmp(big.NewInt(1)) != 0
}
