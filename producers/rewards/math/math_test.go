package math

import (
	"bufio"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// testdata/equal.txt has a pair a line, with what other checkers say of it and whether Weir differs.
func TestGolden(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/equal.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	lines := bufio.NewScanner(file)
	seen := 0
	for lines.Scan() {
		text := lines.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Split(text, "\t")
		require.Len(t, fields, 3, text)
		want := fields[0] == "="
		if Equal(strings.TrimSpace(fields[2]), strings.TrimSpace(fields[1])) != want {
			t.Errorf("%s: accepted %q, given %q", fields[0], fields[1], fields[2])
		}
		seen++
	}
	require.NoError(t, lines.Err())
	require.Greater(t, seen, 100)
}

// Every answer is equal to itself, and no number to another, in whatever forms.
func TestNumbersInAllForms(t *testing.T) {
	t.Parallel()
	forms := func(x *big.Rat) []string {
		out := []string{x.RatString()}
		if x.IsInt() {
			n := x.Num()
			out = append(out, n.String()+".0", "$"+n.String()+"$", `\boxed{`+n.String()+"}", "x = "+n.String(), n.String()+`\text{ cm}`, `\text{`+n.String()+"}")
			if s := n.String(); len(s) > 3 && n.Sign() > 0 {
				out = append(out, s[:len(s)-3]+","+s[len(s)-3:], s[:len(s)-3]+"{,}"+s[len(s)-3:])
			}
			return out
		}
		sign, abs := "", x
		if x.Sign() < 0 {
			sign, abs = "-", new(big.Rat).Neg(x)
		}
		out = append(out, fmt.Sprintf(`%s\frac{%s}{%s}`, sign, abs.Num(), abs.Denom()), fmt.Sprintf(`%s\dfrac{%s}{%s}`, sign, abs.Num(), abs.Denom()))
		if abs.Cmp(big.NewRat(1, 1)) > 0 && sign == "" {
			whole := new(big.Int).Div(abs.Num(), abs.Denom())
			rest := new(big.Int).Mod(abs.Num(), abs.Denom())
			out = append(out, fmt.Sprintf(`%s\frac{%s}{%s}`, whole, rest, abs.Denom()), fmt.Sprintf("%s %s/%s", whole, rest, abs.Denom()))
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *big.Rat {
			return big.NewRat(rapid.Int64Range(-9999, 9999).Draw(t, name), rapid.Int64Range(1, 12).Draw(t, name+"/"))
		}
		x, y := draw("x"), draw("y")
		a := rapid.SampledFrom(forms(x)).Draw(t, "a")
		b := rapid.SampledFrom(forms(y)).Draw(t, "b")
		again := rapid.SampledFrom(forms(x)).Draw(t, "again")
		require.True(t, Equal(a, again), "%q %q", a, again)
		require.Equal(t, x.Cmp(y) == 0, Equal(a, b), "%q %q", a, b)
	})
}

// An answer that is not read to its end is wrong: nothing can stand beside the right one.
func TestNothingStandsBesideTheRightAnswer(t *testing.T) {
	t.Parallel()
	golds := []string{"5", "-3", "1/2", `\frac{3}{4}`, `2\sqrt{3}`, "(1, 2)", `\{1, 2\}`, "[0, 1)", "x^2+1", "Evelyn", "C", `28\%`, "10", "1,000", `\pi`}
	others := []string{"6", "7/8", "11", `3\sqrt{2}`, "Bob", "D", "0", "y"}
	for _, gold := range golds {
		require.True(t, Equal(gold, gold), gold)
		for _, other := range others {
			for _, join := range []string{"%s, %s", "%s or %s", "%s and %s", "%s;%s", "%s = %s", "%s or maybe %s", "{%s}{%s}", "(%s, %s)", "%s / not %s", "%s %s", "%s\n%s", "%s \\cup %s", "%s \\pm %s"} {
				for _, given := range []string{fmt.Sprintf(join, gold, other), fmt.Sprintf(join, other, gold)} {
					if join == "%s = %s" && (other == "y" || other == "D" || gold == "C") {
						continue // y = 5 is an answer
					}
					require.False(t, Equal(given, gold), "accepted %q, given %q", gold, given)
				}
			}
		}
		for _, given := range []string{"", " ", "?", "x", "nan", "inf", `\infty`, "0/0", `\frac{1}{0}`, "()", `\{\}`, "{", "}", `\`, `\boxed{}`, "the answer", "1e999", "a", strings.Repeat("(", 1000), "10^10^10^10"} {
			require.False(t, Equal(given, gold), "accepted %q, given %q", gold, given)
		}
	}
}

func FuzzEqual(f *testing.F) {
	for _, s := range []string{`\frac12`, `x^{2}+\sqrt[3]{y}`, `\{1,2\}`, `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, "(-\\infty, 3]", "1,234.5", `\log_2{8}!`, "2 \\pm 3"} {
		f.Add(s, "5")
	}
	f.Fuzz(func(t *testing.T, given, accepted string) {
		strict, loose := Equal(given, accepted), Options{Loose: true}.Equal(given, accepted)
		require.True(t, loose || !strict, "what is strictly equal is loosely equal: %q %q", given, accepted)
	})
}

func TestReward(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		answer string
		stop   schemas.StopReason
		total  float64
	}{
		"boxed":            {nil, `So \boxed{3}, no, $\boxed{\frac{1}{2}}$.`, schemas.StopAnswer, 1},
		"the last counts":  {nil, `\boxed{\frac{1}{2}} or \boxed{3}`, schemas.StopAnswer, 0},
		"hashes":           {nil, "1+1\n#### 0.5\n", schemas.StopAnswer, 1},
		"in words":         {nil, "I add. The final answer is: $0.5$.\nI hope so.", schemas.StopAnswer, 1},
		"whole":            {nil, "1/2", schemas.StopAnswer, 1},
		"boxed is wanted":  {func(c *Config) { c.Extract = ExtractBoxed }, "1/2", schemas.StopAnswer, 0},
		"whole is wanted":  {func(c *Config) { c.Extract = ExtractWhole }, "The answer is 1/2", schemas.StopAnswer, 0},
		"cut off":          {nil, `\boxed{1/2}`, schemas.StopTokens, 0},
		"plus and minus 1": {func(c *Config) { c.Wrong = -1 }, "3", schemas.StopAnswer, -1},
		"format":           {func(c *Config) { c.Format = 0.1 }, `\boxed{3}`, schemas.StopAnswer, 0.1},
		"not worked out":   {nil, `\boxed{1-1/2}`, schemas.StopAnswer, 0},
		"loose":            {func(c *Config) { c.Loose = true }, `\boxed{1-1/2}`, schemas.StopAnswer, 1},
	} {
		cfg := DefaultConfig()
		if c.change != nil {
			c.change(&cfg)
		}
		r, err := Type().Open(t.Context(), rewards.Opening{Config: &cfg})
		require.NoError(t, err)
		got, err := r.Score(t.Context(), &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"7", "1/2"}}}, &producers.Transcript{Answer: c.answer, Stop: c.stop})
		require.NoError(t, err)
		require.InDelta(t, c.total, got.Total, 1e-12, name)
	}
	_, err := New(Config{Correct: 0, Wrong: 1, Extract: "tail"})
	require.ErrorContains(t, err, "correct: 0: must be above wrong, 1")
	require.ErrorContains(t, err, "extract: unknown")
}

// The cases are what verl's extract_solution gives for these texts (verl/utils/reward_score/gsm8k.py).
func TestGSM8K(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, method, want string }{
		{"so #### 1,272", Strict, "1272"},
		{"#### 5 then #### -7.", Strict, "-7."},
		{"####5", Strict, ""},
		{"it is 5", Strict, ""},
		{"#### 1,2,3", Strict, "123"},
		{"it is 5 of 12", Flexible, "12"},
		{"it is 5 .", Flexible, "5"},
		{"it is 5.", Flexible, "5."},
		{"none", Flexible, ""},
		{"-3", Flexible, "-3"},
		{". .", Flexible, "."},
		{"#### 5" + strings.Repeat(" ", 300), Strict, ""},
	} {
		got, ok := GSM8K(c.text, c.method)
		require.Equal(t, c.want, got, c.text)
		require.Equal(t, c.want != "", ok, c.text)
	}
	cfg := GSM8KType().Config().(*GSM8KConfig)
	cfg.FormatScore = 0.1
	r, err := GSM8KType().Open(t.Context(), rewards.Opening{Config: cfg})
	require.NoError(t, err)
	for answer, want := range map[string]float64{"#### 72": 1, "#### 73": 0.1, "72": 0} {
		got, err := r.Score(t.Context(), &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"72"}}}, &producers.Transcript{Answer: answer, Stop: schemas.StopAnswer})
		require.NoError(t, err)
		require.InDelta(t, want, got.Total, 1e-12, answer)
	}
}
