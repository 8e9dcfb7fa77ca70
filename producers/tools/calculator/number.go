package calculator

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// number is a value: an exact fraction, or a rounded float where exact is nil.
type number struct {
	exact   *big.Rat
	rounded float64
}

// maxBits bounds the numbers, so that no expression takes long.
const maxBits = 1 << 16

var errTooLarge = fmt.Errorf("a number has more than %d binary digits", maxBits)

func numberFromFloat(x float64) (number, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return number{}, errors.New("the result is not a finite number")
	}
	return number{rounded: x}, nil
}

// numberFromRat returns an exact number.
func numberFromRat(r *big.Rat) (number, error) {
	if r.Num().BitLen() > maxBits || r.Denom().BitLen() > maxBits {
		return number{}, errTooLarge
	}
	return number{exact: r}, nil
}

// wholeNumber returns a whole number.
func wholeNumber(n int64) number { return number{exact: new(big.Rat).SetInt64(n)} }

// floatValue returns the value, rounded.
func (n number) floatValue() float64 {
	if n.exact == nil {
		return n.rounded
	}
	f, _ := n.exact.Float64()
	return f
}

// wholeValue returns the value as a whole number; false where it is not whole, or rounded.
func (n number) wholeValue() (*big.Int, bool) {
	if n.exact == nil || !n.exact.IsInt() {
		return nil, false
	}
	return n.exact.Num(), true
}

// isZero reports whether the number is zero.
func (n number) isZero() bool {
	if n.exact == nil {
		return n.rounded == 0
	}
	return n.exact.Sign() == 0
}

// negate returns the number with the other sign.
func (n number) negate() number {
	if n.exact == nil {
		return number{rounded: -n.rounded}
	}
	return number{exact: new(big.Rat).Neg(n.exact)}
}

// String is a whole number, a decimal that ends, or a fraction with its approximate value; a rounded number is said to be so.
func (n number) String() string {
	if n.exact == nil {
		return "about " + shortestText(n.rounded)
	}
	if n.exact.IsInt() {
		return n.exact.Num().String()
	}
	if digits, exact := n.exact.FloatPrec(); exact && digits <= 30 {
		return n.exact.FloatString(digits)
	}
	about := n.floatValue()
	if math.IsInf(about, 0) {
		return n.exact.String()
	}
	return n.exact.String() + ", about " + shortestText(about)
}

// shortestText returns the shortest text of a number.
func shortestText(x float64) string {
	text := strconv.FormatFloat(x, 'g', 15, 64)
	if !strings.ContainsRune(text, 'e') {
		return text
	}
	mantissa, exponent, _ := strings.Cut(text, "e")
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return mantissa + "e" + sign + strings.TrimLeft(exponent, "+-0")
}

// applyOperator applies an operator.
func applyOperator(op string, a, b number) (number, error) {
	if b.isZero() && (op == "/" || op == "//" || op == "%") {
		return number{}, errors.New("division by zero")
	}
	if op == "^" {
		return powerOf(a, b)
	}
	if a.exact == nil || b.exact == nil {
		return roundedBinary(op, a.floatValue(), b.floatValue())
	}
	r := new(big.Rat)
	switch op {
	case "+":
		r.Add(a.exact, b.exact)
	case "-":
		r.Sub(a.exact, b.exact)
	case "*":
		r.Mul(a.exact, b.exact)
	case "/":
		r.Quo(a.exact, b.exact)
	default:
		floor := new(big.Rat).SetInt(floorOf(r.Quo(a.exact, b.exact)))
		if r = floor; op == "%" {
			r = new(big.Rat).Sub(a.exact, new(big.Rat).Mul(floor, b.exact))
		}
	}
	return numberFromRat(r)
}

// floorOf returns the greatest whole number that is not above r.
func floorOf(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclid's division rounds down where the divisor is positive
}

func roundedBinary(op string, a, b float64) (number, error) {
	switch op {
	case "+":
		return numberFromFloat(a + b)
	case "-":
		return numberFromFloat(a - b)
	case "*":
		return numberFromFloat(a * b)
	case "/":
		return numberFromFloat(a / b)
	case "//":
		return numberFromFloat(math.Floor(a / b))
	}
	return numberFromFloat(a - b*math.Floor(a/b))
}

// powerOf returns a to the power b, which is exact where the exponent is whole.
func powerOf(a, b number) (number, error) {
	n, ok := b.wholeValue()
	if a.exact == nil || !ok {
		if root, exact := rootPower(a, b); exact {
			return root, nil
		}
		if a.floatValue() < 0 {
			return number{}, errors.New("a power of a negative number with a broken exponent")
		}
		return numberFromFloat(math.Pow(a.floatValue(), b.floatValue()))
	}
	if a.isZero() && n.Sign() < 0 {
		return number{}, errors.New("division by zero")
	}
	bits := int64(max(a.exact.Num().BitLen(), a.exact.Denom().BitLen()))
	if bits <= 1 { // 0, 1 and -1
		odd := n.Bit(0) == 1
		if !odd {
			a = number{exact: new(big.Rat).Mul(a.exact, a.exact)}
		}
		if n.Sign() == 0 {
			a = wholeNumber(1)
		}
		return a, nil
	}
	if !n.IsInt64() || n.Int64() > maxBits/(bits-1) || n.Int64() < -maxBits/(bits-1) {
		return number{}, errTooLarge
	}
	e := new(big.Int).Abs(n)
	r := new(big.Rat).SetFrac(new(big.Int).Exp(a.exact.Num(), e, nil), new(big.Int).Exp(a.exact.Denom(), e, nil))
	if n.Sign() < 0 {
		r.Inv(r)
	}
	return numberFromRat(r)
}

// rootPower is a number to the power of a half, exact where the root is.
func rootPower(a, b number) (number, bool) {
	if a.exact == nil || b.exact == nil || b.exact.Cmp(big.NewRat(1, 2)) != 0 {
		return number{}, false
	}
	return exactRoot(a)
}

// exactRoot is the square root where that is a fraction.
func exactRoot(a number) (number, bool) {
	if a.exact == nil || a.exact.Sign() < 0 {
		return number{}, false
	}
	num, den := new(big.Int).Sqrt(a.exact.Num()), new(big.Int).Sqrt(a.exact.Denom())
	r := new(big.Rat).SetFrac(num, den)
	return number{exact: r}, new(big.Rat).Mul(r, r).Cmp(a.exact) == 0
}
