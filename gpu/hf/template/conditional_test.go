package template

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A conditional expression may stand wherever an expression may, and only the operand that is asked for is looked at.
func TestConditionalExpressionsWithinExpressions(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{{ (a if yes else b) + "!" }}`:                               "A!",
		`{{ (a if no else b) + "!" }}`:                                "B!",
		`{{ ("" if yes else b) + "!" }}`:                              "!",
		`{{ [a, b if no else "c"] | join("-") }}`:                     "A-c",
		`{{ a if no else b if no else "c" }}`:                         "c",
		`{%- set x = a if no else b if yes else "c" -%}{{ x }}`:       "B",
		`{{ dict(x=a if no else b).x }}`:                              "B",
		`{{ {"x": a if no else b}.x }}`:                               "B",
		`{{ ("x if y else z" if yes else 'its') }}`:                   "x if y else z",
		`{{ ((a if no else b) if yes else "c") }}`:                    "B",
		`{{ (a if (no if yes else yes) else b) }}`:                    "B",
		`{{ (b.upper() if yes else missing.upper()) + ")" }}`:         "B)",
		`{{ (a if no else (b if no else "d")) }}`:                     "d",
		`{% if (yes if no else no) %}1{% else %}2{% endif %}`:         "2",
		`{% for x in [a, b] if x == "B" %}{{ x }}{% endfor %}`:        "B",
		`{# (a if b else c #}{{ "(" }}{{ a if yes else b }}{{ "(" }}`: "(A(",
	} {
		tpl, err := Parse(source)
		require.NoError(t, err, source)
		text, err := tpl.RenderVars(map[string]any{"a": "A", "b": "B", "yes": true, "no": false})
		require.NoError(t, err, source)
		require.Equal(t, want, text, source)
	}
}

// What holds no conditional is left as it is, and nothing makes the rewriting fail.
func TestTextWithoutConditionalsIsLeftAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune(`{}%#()[]"' ,ifels-=:a`+"\n\\"))).Draw(t, "text")
		got := rewriteConditionals(text)
		if !strings.Contains(text, "else") {
			require.Equal(t, text, got)
		}
	})
}
