package calculator

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

// constants have no exact value.
var constants = map[string]float64{"pi": math.Pi, "e": math.E, "tau": 2 * math.Pi}

// many is more arguments than an expression holds.
const many = maxText

// function takes from least to most arguments.
type function struct {
	least, most int
	of          func(args []number) (number, error)
}

// countArguments says how many arguments the function takes.
func (f function) countArguments() string {
	switch {
	case f.most == many:
		return fmt.Sprintf("%d numbers or more", f.least)
	case f.least == f.most && f.least == 1:
		return "1 number"
	case f.least == f.most:
		return fmt.Sprintf("%d numbers", f.least)
	}
	return fmt.Sprintf("%d to %d numbers", f.least, f.most)
}

// known lists the functions, for calls of an unknown function.
const known = "pi, e, tau, abs, ceil, cos, degrees, exp, factorial, floor, gcd, lcm, ln, log, log2, max, min, radians, round, sin, sqrt, tan"

var functions = map[string]function{
	"abs":       {1, 1, func(a []number) (number, error) { return absoluteValue(a[0]), nil }},
	"ceil":      {1, 1, func(a []number) (number, error) { return roundNumber(a[0], math.Ceil, ceilingOf) }},
	"floor":     {1, 1, func(a []number) (number, error) { return roundNumber(a[0], math.Floor, floorOf) }},
	"round":     {1, 2, roundDecimals},
	"sqrt":      {1, 1, rootOf},
	"factorial": {1, 1, factorialOf},
	"gcd":       {2, many, func(a []number) (number, error) { return foldIntegers(a, greatestDivisor) }},
	"lcm":       {2, many, func(a []number) (number, error) { return foldIntegers(a, leastMultiple) }},
	"max":       {1, many, func(a []number) (number, error) { return extremeOf(a, 1), nil }},
	"min":       {1, many, func(a []number) (number, error) { return extremeOf(a, -1), nil }},
	"log":       {1, 2, logarithmOf},
	"ln":        {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Log(a[0].floatValue())) }},
	"log2":      {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Log2(a[0].floatValue())) }},
	"exp":       {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Exp(a[0].floatValue())) }},
	"sin":       {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Sin(a[0].floatValue())) }},
	"cos":       {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Cos(a[0].floatValue())) }},
	"tan":       {1, 1, func(a []number) (number, error) { return numberFromFloat(math.Tan(a[0].floatValue())) }},
	"radians":   {1, 1, func(a []number) (number, error) { return numberFromFloat(a[0].floatValue() * math.Pi / 180) }},
	"degrees":   {1, 1, func(a []number) (number, error) { return numberFromFloat(a[0].floatValue() * 180 / math.Pi) }},
}

// absoluteValue returns the number without its sign.
func absoluteValue(a number) number {
	if a.exact == nil {
		return number{rounded: math.Abs(a.rounded)}
	}
	return number{exact: new(big.Rat).Abs(a.exact)}
}

// roundNumber rounds a number to a whole number.
func roundNumber(a number, near func(float64) float64, exact func(*big.Rat) *big.Int) (number, error) {
	if a.exact == nil {
		return numberFromFloat(near(a.rounded))
	}
	return numberFromRat(new(big.Rat).SetInt(exact(a.exact)))
}

// ceilingOf returns the least whole number that is not below r.
func ceilingOf(r *big.Rat) *big.Int {
	n := floorOf(new(big.Rat).Neg(r))
	return n.Neg(n)
}

// roundDecimals rounds halves away from zero, as schools teach it, to so many decimals.
func roundDecimals(a []number) (number, error) {
	decimals := int64(0)
	if len(a) == 2 {
		n, ok := a[1].wholeValue()
		if !ok || !n.IsInt64() || n.Int64() < -100 || n.Int64() > 100 {
			return number{}, errors.New("the decimals are not a whole number between -100 and 100")
		}
		decimals = n.Int64()
	}
	x := a[0].exact
	if x == nil {
		x = new(big.Rat)
		x.SetFloat64(a[0].rounded)
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(decimals, -decimals)), nil))
	if decimals < 0 {
		scale.Inv(scale)
	}
	half := floorOf(new(big.Rat).Add(new(big.Rat).Mul(new(big.Rat).Abs(x), scale), big.NewRat(1, 2)))
	if x.Sign() < 0 {
		half.Neg(half)
	}
	return numberFromRat(new(big.Rat).Quo(new(big.Rat).SetInt(half), scale))
}

// rootOf returns a square root, or the root of a given degree.
func rootOf(a []number) (number, error) {
	if r, exact := exactRoot(a[0]); exact {
		return r, nil
	}
	if a[0].floatValue() < 0 {
		return number{}, errors.New("a negative number has no square root here")
	}
	return numberFromFloat(math.Sqrt(a[0].floatValue()))
}

// maxFactorial has fewer digits than a number may.
const maxFactorial = 5000

// factorialOf returns the factorial of a whole number.
func factorialOf(a []number) (number, error) {
	n, ok := a[0].wholeValue()
	if !ok || n.Sign() < 0 || n.Cmp(big.NewInt(maxFactorial)) > 0 {
		return number{}, fmt.Errorf("the number is not a whole number between 0 and %d", maxFactorial)
	}
	return numberFromRat(new(big.Rat).SetInt(new(big.Int).MulRange(1, max(1, n.Int64()))))
}

// greatestDivisor returns the greatest common divisor.
func greatestDivisor(a, b *big.Int) *big.Int {
	return new(big.Int).GCD(nil, nil, new(big.Int).Abs(a), new(big.Int).Abs(b))
}

// leastMultiple returns the least common multiple.
func leastMultiple(a, b *big.Int) *big.Int {
	d := greatestDivisor(a, b)
	if d.Sign() == 0 {
		return d
	}
	m := new(big.Int).Mul(a, b)
	return m.Abs(m.Quo(m, d))
}

// foldIntegers combines whole numbers, from the first to the last.
func foldIntegers(args []number, of func(a, b *big.Int) *big.Int) (number, error) {
	var out *big.Int
	for _, arg := range args {
		n, ok := arg.wholeValue()
		switch {
		case !ok:
			return number{}, fmt.Errorf("%s is not a whole number", arg)
		case out == nil:
			out = n
		default:
			out = of(out, n)
		}
		if out.BitLen() > maxBits {
			return number{}, errTooLarge
		}
	}
	return numberFromRat(new(big.Rat).SetInt(out))
}

// extremeOf returns the greatest number where sign is 1, the least where it is -1.
func extremeOf(args []number, sign int) number {
	best := args[0]
	for _, n := range args[1:] {
		if compareNumbers(n, best) == sign {
			best = n
		}
	}
	return best
}

// compareNumbers returns -1, 0 or 1 as a is below, equal to or above b.
func compareNumbers(a, b number) int {
	exact := func(n number) *big.Rat {
		if n.exact != nil {
			return n.exact
		}
		r := new(big.Rat)
		r.SetFloat64(n.rounded)
		return r
	}
	return exact(a).Cmp(exact(b))
}

// logarithmOf returns the logarithm to base 10, or to the base given.
func logarithmOf(a []number) (number, error) {
	base := 10.0
	if len(a) == 2 {
		base = a[1].floatValue()
	}
	if base == 10 {
		return numberFromFloat(math.Log10(a[0].floatValue()))
	}
	return numberFromFloat(math.Log(a[0].floatValue()) / math.Log(base))
}
