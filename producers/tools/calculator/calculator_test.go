package calculator

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 + 2": "3", "0.1 + 0.2": "0.3", "2 * 3 + 4 * 5": "26", "2 - 3 - 4": "-5", "1 / 3": "1/3, about 0.333333333333333", "10 / 4": "2.5",
		"7 // 2": "3", "-7 // 2": "-4", "-7 % 3": "2", "7 % -3": "-2", "2 ^ 10": "1024", "2**0.5": "about 1.4142135623731",
		"2 ^ 3 ^ 2": "512", "-2 ^ 2": "-4", "(-2) ^ 2": "4", "2 ^ -2": "0.25", "(1/4) ^ (1/2)": "0.5", "0 ^ 0": "1", "(-1) ^ 3": "-1", "1 ^ 99999999999999999999": "1",
		"sqrt(16)": "4", "sqrt(2)": "about 1.4142135623731", "SQRT( 9/4 )": "1.5", "abs(-3/4)": "0.75", "round(2.5)": "3", "round(-2.5)": "-3",
		"round(3.14159, 2)": "3.14", "round(1234, -2)": "1200", "round(pi, 4)": "3.1416", "floor(-0.5)": "-1", "ceil(1/3)": "1", "floor(pi)": "about 3",
		"max(1, 2.5, 2)": "2.5", "min(3, pi)": "3", "gcd(12, 18, 27)": "3", "lcm(4, 6)": "12", "factorial(20)": "2432902008176640000", "factorial(0)": "1",
		"log(1000)": "about 3", "ln(e)": "about 1", "log(8, 2)": "about 3", "1e3 + 1_000": "2000", "2.5e-1": "0.25", ".5": "0.5", "5.": "5",
		"6 × 7 ÷ 2 − 1": "20", "17 * 23 + 14 * 33": "853", "10^40 + 1": "10000000000000000000000000000000000000001", "1e300 * pi": "about 3.14159265358979e300",
		"2^100 // 7": "181092942889747057356671886482", "-(3)": "-3", "--3": "3",
	} {
		got, err := Evaluate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "there is no expression", " ": "there is no expression", "1 +": "the expression ends where a number should be", "1 / 0": "division by zero",
		"1 // (2 - 2)": "division by zero", "1 % 0": "division by zero", "0 ^ -1": "division by zero", "(1": `the expression ends where ")" should be`, "1)": `")" was not expected`,
		"1 2": `"2" was not expected`, "foo(1)": `"foo" is not known: there are pi, e`, "2 = 2": `"=" was not expected`, "sqrt(-1)": "has no square root", "(-8) ^ (1/3)": "negative number",
		"sqrt()": "sqrt takes 1 number", "gcd(1)": "gcd takes 2 numbers or more", "round(1, 2, 3)": "round takes 1 to 2 numbers", "gcd(1.5, 2)": "gcd: 1.5 is not a whole number",
		"log(0)": "not a finite number", "log(-1)": "not a finite number", "2 ^ 1000000000": "binary digits", "9^9^9^9": "binary digits", "factorial(5001)": "between 0 and 5000",
		"factorial(1.5)": "factorial:", "1e99999": "the exponent of 1e99999", "sqrt 4": `"4" was not expected: "(" should be there`, "exp(1000)": "not a finite number",
		strings.Repeat("(", 200): "nested deeper than 100", strings.Repeat("2^", 200) + "2": "nested deeper than 100", strings.Repeat("1", 5000): "longer than 4096 bytes", "..": "is not a number",
		"__import__('os')": `"_" was not expected`, "1,000": `"," was not expected`,
	} {
		_, err := Evaluate(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := Tool{}.Call(t.Context(), producers.Call{Arguments: "1 / 0"})
	require.NotErrorIs(t, err, producers.ErrUnavailable, "the agent is told")
}

// countdown is a context that ends after it was asked so often.
type countdown struct {
	context.Context //nolint:containedctx // it is one
	left            int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Finding A24 of the agents' review: an expression of great numbers was worked out to its end, whatever the time.
func TestACallEndsWithItsTime(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1+1+1+1+1+1", "2*(3*(4*(5*6)))", "1^1^1^1^1^1", "abs(abs(abs(abs(1))))", "gcd(1+1,2+2,3+3,4+4)"} {
		ctx := &countdown{t.Context(), 3}
		_, err := Tool{}.Call(ctx, producers.Call{Arguments: text})
		require.ErrorIs(t, err, context.DeadlineExceeded, text)
		require.Equal(t, -1, ctx.left, "the time is looked at before each step, and no step comes after it")
	}
}

// Sums, differences, products and quotients are those of fractions, however they are nested.
func TestAgainstFractions(t *testing.T) {
	t.Parallel()
	var expression func(rt *rapid.T, depth int) (string, *big.Rat)
	expression = func(rt *rapid.T, depth int) (string, *big.Rat) {
		if depth == 0 || rapid.Bool().Draw(rt, "leaf") {
			n, d := rapid.Int64Range(-999, 999).Draw(rt, "n"), rapid.IntRange(0, 3).Draw(rt, "decimals")
			r := new(big.Rat).Quo(big.NewRat(n, 1), new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d)), nil)))
			return "(" + r.FloatString(d) + ")", r
		}
		a, x := expression(rt, depth-1)
		b, y := expression(rt, depth-1)
		switch op := rapid.SampledFrom([]string{"+", "-", "*", "/"}).Draw(rt, "op"); {
		case op == "+":
			return fmt.Sprintf("(%s + %s)", a, b), new(big.Rat).Add(x, y)
		case op == "-":
			return fmt.Sprintf("(%s-%s)", a, b), new(big.Rat).Sub(x, y)
		case op == "*" || y.Sign() == 0:
			return fmt.Sprintf("(%s *%s)", a, b), new(big.Rat).Mul(x, y)
		default:
			return fmt.Sprintf("(%s/ %s)", a, b), new(big.Rat).Quo(x, y)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		text, want := expression(rt, 4)
		got, err := Evaluate(text)
		require.NoError(rt, err, text)
		fraction, _, _ := strings.Cut(got, ",")
		r, ok := new(big.Rat).SetString(fraction)
		require.True(rt, ok, got)
		require.Zero(rt, r.Cmp(want), "%s = %s, want %s", text, got, want)
	})
}

func TestEveryFunctionIsListed(t *testing.T) {
	t.Parallel()
	listed := strings.Split(known, ", ")
	for name := range functions {
		require.Contains(t, listed, name)
	}
	require.Len(t, listed, len(functions)+len(constants))
	require.True(t, slices.IsSorted(listed[len(constants):]))
}

func TestType(t *testing.T) {
	t.Parallel()
	tool, err := Type().Open(t.Context(), tools.Opening{})
	require.NoError(t, err)
	o, err := tool.Call(t.Context(), producers.Call{Arguments: " 6*7 "})
	require.NoError(t, err)
	require.Equal(t, "42", o.Text)
	require.Equal(t, Name, tool.Spec().Name)
}

func FuzzEvaluate(f *testing.F) {
	for _, text := range []string{"1+2", "2^-3^4", "round(1/3,5)", "((1", "9^9^9", "1e-10000/3", "factorial(5000)^2", "lcm(1,2,3)%0.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Evaluate(text)
		if err == nil && got == "" {
			t.Fatalf("%q: an empty result", text)
		}
	})
}
