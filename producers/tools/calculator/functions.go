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

func (f function) takes() string {
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

// known lists what there is, for those who ask for something else.
const known = "pi, e, tau, abs, ceil, cos, degrees, exp, factorial, floor, gcd, lcm, ln, log, log2, max, min, radians, round, sin, sqrt, tan"

var functions = map[string]function{
	"abs":       {1, 1, func(a []number) (number, error) { return absolute(a[0]), nil }},
	"ceil":      {1, 1, func(a []number) (number, error) { return rounded(a[0], math.Ceil, ceiling) }},
	"floor":     {1, 1, func(a []number) (number, error) { return rounded(a[0], math.Floor, floor) }},
	"round":     {1, 2, round},
	"sqrt":      {1, 1, root},
	"factorial": {1, 1, factorial},
	"gcd":       {2, many, func(a []number) (number, error) { return fold(a, gcd) }},
	"lcm":       {2, many, func(a []number) (number, error) { return fold(a, lcm) }},
	"max":       {1, many, func(a []number) (number, error) { return extreme(a, 1), nil }},
	"min":       {1, many, func(a []number) (number, error) { return extreme(a, -1), nil }},
	"log":       {1, 2, logarithm},
	"ln":        {1, 1, func(a []number) (number, error) { return fromFloat(math.Log(a[0].float())) }},
	"log2":      {1, 1, func(a []number) (number, error) { return fromFloat(math.Log2(a[0].float())) }},
	"exp":       {1, 1, func(a []number) (number, error) { return fromFloat(math.Exp(a[0].float())) }},
	"sin":       {1, 1, func(a []number) (number, error) { return fromFloat(math.Sin(a[0].float())) }},
	"cos":       {1, 1, func(a []number) (number, error) { return fromFloat(math.Cos(a[0].float())) }},
	"tan":       {1, 1, func(a []number) (number, error) { return fromFloat(math.Tan(a[0].float())) }},
	"radians":   {1, 1, func(a []number) (number, error) { return fromFloat(a[0].float() * math.Pi / 180) }},
	"degrees":   {1, 1, func(a []number) (number, error) { return fromFloat(a[0].float() * 180 / math.Pi) }},
}

func absolute(a number) number {
	if a.exact == nil {
		return number{rounded: math.Abs(a.rounded)}
	}
	return number{exact: new(big.Rat).Abs(a.exact)}
}

func rounded(a number, near func(float64) float64, exact func(*big.Rat) *big.Int) (number, error) {
	if a.exact == nil {
		return fromFloat(near(a.rounded))
	}
	return fromRat(new(big.Rat).SetInt(exact(a.exact)))
}

func ceiling(r *big.Rat) *big.Int {
	n := floor(new(big.Rat).Neg(r))
	return n.Neg(n)
}

// round rounds halves away from zero, as schools teach it, to so many decimals.
func round(a []number) (number, error) {
	decimals := int64(0)
	if len(a) == 2 {
		n, ok := a[1].integer()
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
	half := floor(new(big.Rat).Add(new(big.Rat).Mul(new(big.Rat).Abs(x), scale), big.NewRat(1, 2)))
	if x.Sign() < 0 {
		half.Neg(half)
	}
	return fromRat(new(big.Rat).Quo(new(big.Rat).SetInt(half), scale))
}

func root(a []number) (number, error) {
	if r, exact := exactRoot(a[0]); exact {
		return r, nil
	}
	if a[0].float() < 0 {
		return number{}, errors.New("a negative number has no square root here")
	}
	return fromFloat(math.Sqrt(a[0].float()))
}

// maxFactorial has fewer digits than a number may.
const maxFactorial = 5000

func factorial(a []number) (number, error) {
	n, ok := a[0].integer()
	if !ok || n.Sign() < 0 || n.Cmp(big.NewInt(maxFactorial)) > 0 {
		return number{}, fmt.Errorf("the number is not a whole number between 0 and %d", maxFactorial)
	}
	return fromRat(new(big.Rat).SetInt(new(big.Int).MulRange(1, max(1, n.Int64()))))
}

func gcd(a, b *big.Int) *big.Int {
	return new(big.Int).GCD(nil, nil, new(big.Int).Abs(a), new(big.Int).Abs(b))
}

func lcm(a, b *big.Int) *big.Int {
	d := gcd(a, b)
	if d.Sign() == 0 {
		return d
	}
	m := new(big.Int).Mul(a, b)
	return m.Abs(m.Quo(m, d))
}

func fold(args []number, of func(a, b *big.Int) *big.Int) (number, error) {
	var out *big.Int
	for _, arg := range args {
		n, ok := arg.integer()
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
	return fromRat(new(big.Rat).SetInt(out))
}

// extreme is the greatest where sign is 1, the least where it is -1.
func extreme(args []number, sign int) number {
	best := args[0]
	for _, n := range args[1:] {
		if compare(n, best) == sign {
			best = n
		}
	}
	return best
}

func compare(a, b number) int {
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

// logarithm is that to base 10, or to the base given.
func logarithm(a []number) (number, error) {
	base := 10.0
	if len(a) == 2 {
		base = a[1].float()
	}
	if base == 10 {
		return fromFloat(math.Log10(a[0].float()))
	}
	return fromFloat(math.Log(a[0].float()) / math.Log(base))
}
