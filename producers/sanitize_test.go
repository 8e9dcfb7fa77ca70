package producers_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// bounded is a tool with a bound of its own.
type bounded struct {
	calling
	cut producers.Cut
}

func (b bounded) Cut() producers.Cut { return b.cut }

func TestWhatATerminalObeysIsTakenOut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 日本\n\tx":                          "plain é 日本\n\tx",
		"\x1b[31mred\x1b[0m":                       "red",
		"\x1b]0;title\x07after":                    "after",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1b]never ended\nnext":                   "\nnext",
		"\u009b2Jx\u009d0;t\x07y":                  "xy",
		"\x1b(Bx\x1bMy\x1b":                        "xy",
		"a\x00b\bc\x7fd":                           "abcd",
		"one\r\ntwo\rthree":                        "one\ntwo\nthree",
		"\xff\xfeok":                               "\ufffdok",
		"abc\u202edef\u2066":                       "abcdef",
		"a\ufdd0b\ufdefc\ufffed\U0010ffffe\ufdf0":  "abcde\ufdf0", // finding A10b of the agents' review
	} {
		require.Equal(t, want, producers.Printable(in), "%q", in)
	}
}

// Nothing that a terminal obeys is left, whatever a tool wrote, and what was printable is as it was.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31mb\r\n\x1b]0;t\x07")
	f.Add("\x1b\x1b[\x1b]")
	f.Fuzz(func(t *testing.T, text string) {
		out := producers.Printable(text)
		require.True(t, utf8.ValidString(out))
		require.False(t, strings.ContainsAny(out, "\x00\x1b\r\x07\x08\x7f\u009b\u009d\u202e"), "%q", out)
		require.Equal(t, out, producers.Printable(out))
	})
}

// What a tool says is cut in tokens, at the end that its bound names, with how much is missing; errors are cut too.
func TestObservationsAreCutInTokens(t *testing.T) {
	t.Parallel()
	tok := pieces{"a", "b", "c", " ", "[", "]", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "tokens", "cut", "error", ":", "bytes", "and", "\n"}
	text := "aaaa" + strings.Repeat("b", 100) + "cccc"
	for _, tc := range []struct {
		cut   producers.Cut
		fails bool
		text  string
		want  string
	}{
		{producers.Cut{Tokens: 4, Keep: producers.KeepLeft}, false, text, "aaaa [104 tokens cut] "},
		{producers.Cut{Tokens: 4, Keep: producers.KeepRight}, false, text, " [104 tokens cut] cccc"},
		{producers.Cut{Tokens: 5, Keep: producers.KeepBoth}, false, text, "aaa [103 tokens cut] cc"},
		{producers.Cut{Tokens: 108, Keep: producers.KeepBoth}, false, text, text},
		{producers.Cut{}, false, text, text},
		{producers.Cut{Tokens: 7, Keep: producers.KeepLeft}, true, text, "error: aaaa [104 tokens cut] "},
		{producers.Cut{Tokens: 2, Keep: producers.KeepBoth}, false, "a" + strings.Repeat("b", 1<<20) + "c", "a [255 tokens and 1048322 bytes cut] c"},
	} {
		env := newEnvironment(t, policyFunc(one))
		env.Tokenizer = tok
		env.Tools = []producers.Tool{bounded{calling{"say", func(context.Context, producers.Call) (producers.Observation, error) {
			if tc.fails {
				return producers.Observation{}, textError(tc.text)
			}
			return producers.Observation{Text: tc.text}, nil
		}}, tc.cut}}
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.NoError(t, e.Begin([]int32{1}))
			_, _, err := e.Generate(ctx, producers.GenerateOptions{})
			require.NoError(t, err)
			o, err := e.Call(ctx, "say", "")
			require.NoError(t, err)
			require.Equal(t, tc.want, o.Text)
			e.Finish("", schemas.StopAnswer)
			return nil
		})
		_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
		require.NoError(t, err)
	}
	require.NoError(t, producers.DefaultCut().Validate())
	require.ErrorContains(t, producers.Cut{Tokens: -1, Keep: "middle"}.Validate(), `keep: unknown "middle"`)
}

type textError string

func (e textError) Error() string { return string(e) }
