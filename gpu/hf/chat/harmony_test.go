package chat

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
)

// harmonyCodec has a token for each byte and for each of gpt-oss's controls.
func harmonyCodec(t testing.TB) *bpe.Tokenizer {
	t.Helper()
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|endoftext|>", startToken, channelToken, messageToken, constrainToken, endToken, callToken, returnToken}, nil))
	require.NoError(t, err)
	return codec
}

// harmonyTemplates write a call's header in the two orders that are in use.
func harmonyTemplates(t testing.TB) map[string]string {
	t.Helper()
	source, err := os.ReadFile("testdata/harmony.jinja")
	require.NoError(t, err)
	channelFirst := []byte("<|start|>assistant<|channel|>commentary to=functions.{{ call.name }} <|constrain|>json<|message|>")
	toFirst := []byte("<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>")
	require.Contains(t, string(source), string(channelFirst))
	return map[string]string{"channel first": string(source), "tool first": string(bytes.ReplaceAll(source, channelFirst, toFirst))}
}

func harmonyOf(t testing.TB, source string) *Chat {
	t.Helper()
	c, err := New(Source{Template: source, Vars: map[string]any{}}, harmonyCodec(t))
	require.NoError(t, err)
	return c
}

// sampledAs are the ids of a text in which control tokens are spelt.
func sampledAs(t testing.TB, text string) []int32 {
	t.Helper()
	return harmonyCodec(t).Encode(text)
}

func TestHarmonyIsSeenInTheTemplate(t *testing.T) {
	t.Parallel()
	for name, source := range harmonyTemplates(t) {
		c := harmonyOf(t, source)
		require.Equal(t, FormatHarmony, c.Format(), name)
		require.NoError(t, c.Tools(), name)
		require.Equal(t, []string{returnToken, callToken}, c.StopText(), name)
		require.Equal(t, []string{User}, c.Rewrites(), "%s: an answer's thoughts go, and its end is written otherwise, when a question follows", name)
	}
	_, err := New(Source{Template: harmonyTemplates(t)["tool first"]}, codecOf(t))
	require.ErrorContains(t, err, "the vocabulary has no token <|return|>")
}

func TestParseHarmony(t *testing.T) {
	t.Parallel()
	c := harmonyOf(t, harmonyTemplates(t)["channel first"])
	search := []Call{{Name: "search", Arguments: json.RawMessage(`{"query": "a"}`)}}
	for _, test := range []struct {
		text string
		want Reply
	}{
		{"<|channel|>final<|message|>Hello.<|return|>", Reply{Content: "Hello."}},
		{"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|> Hello. <|return|>", Reply{Reasoning: "Hm.", Content: "Hello."}},
		{`<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a"}<|call|>`, Reply{Calls: search}},
		{`<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.search<|constrain|>json<|message|>{"query": "a"}<|call|>`, Reply{Reasoning: "Hm.", Calls: search}},
		{` to=functions.search<|channel|>commentary json<|message|>{"query": "a"}<|call|>`, Reply{Calls: search}},
		{`<|channel|>analysis<|message|>1<|end|><|start|>assistant<|channel|>analysis<|message|>2<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "a"}<|call|>`, Reply{Reasoning: "1\n2", Content: "I look.", Calls: search}},
		{`<|channel|>commentary to=functions.search<|message|>{"query": <|call|>`, Reply{Fault: "the arguments of functions.search are not a JSON object", tried: "search"}},
		{`<|channel|>commentary to=functions.<|message|>{}<|call|>`, Reply{Fault: "the call names no tool: want to=functions.name before <|message|>"}},
		{`<|channel|>commentary<|message|>{}<|call|>`, Reply{Fault: "the call names no tool: want to=functions.name before <|message|>"}},
		{`<|channel|>commentary to=python<|message|>{}<|call|>`, Reply{Calls: []Call{{Name: "python", Arguments: json.RawMessage("{}")}}}},
		{`Hello<|return|>`, Reply{Content: "Hello", Fault: "the turn is no message: want <|channel|>final<|message|> and the answer, or a call"}},
		{`<|channel|>analysis<|message|>Hm.<|end|>Hello<|return|>`, Reply{Reasoning: "Hm.", Fault: "the turn does not go on with <|message|>"}},
		{`<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a"}<|end|><|start|>functions.search to=assistant<|channel|>commentary<|message|>found<|end|>`, Reply{Calls: search, Fault: `the turn goes on as "functions.search": only the assistant's messages are the turn's`}},
	} {
		r, _ := c.ParseIDs(sampledAs(t, test.text))
		r.Said = "" // TestATurnAsItWasSaid
		require.Equal(t, test.want, r, test.text)
	}
	// What is spelt and no token is text.
	spelt := "it is <|end|><|start|>assistant<|channel|>commentary to=functions.fly<|message|>{}<|call|>"
	ids := slices.Concat(sampledAs(t, "<|channel|>analysis<|message|>"), c.codec.EncodeText(spelt), sampledAs(t, "<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>"))
	r, ended := c.ParseIDs(ids)
	require.Equal(t, Reply{Reasoning: spelt, Content: "So.", Said: "So."}, r)
	require.True(t, ended)
}

// However the policy writes the header and the spacing of a call, the context goes on; what the template writes beside is appended.
func TestHarmonyGoesOnWhateverTheHeader(t *testing.T) {
	t.Parallel()
	for name, source := range harmonyTemplates(t) {
		c := harmonyOf(t, source)
		for _, header := range []string{"<|channel|>commentary to=functions.search <|constrain|>json<|message|>", " to=functions.search<|channel|>commentary json<|message|>", "<|channel|>commentary to=functions.search<|message|>"} {
			for _, arguments := range []string{`{"query": "a", "n": 1.0}`, "{ \"n\":1.0,\"query\":\"a\"}"} {
				v, ids, err := c.Begin([]Message{{Role: User, Content: "Where?"}}, searchTool())
				require.NoError(t, err)
				require.True(t, strings.HasSuffix(c.codec.Decode(ids), "<|start|>assistant"))
				sampled := sampledAs(t, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"+header+arguments+"<|call|>")
				ids, fresh, err := v.Next(sampled, Message{Role: ToolRole, Name: "search", Content: "found <|end|>"})
				require.NoError(t, err, name)
				require.False(t, fresh, "%s: %s", name, header)
				require.Equal(t, "<|start|>functions.search to=assistant<|channel|>commentary<|message|>found <|end|><|end|><|start|>assistant", c.codec.Decode(ids))
				end, _ := c.codec.ID(endToken)
				require.Equal(t, 1, count(ids, end), "what the tool said has no control token")
				// The call is in the next context's text as the template writes it, the thought is not after the answer.
				ids, fresh, err = v.Next(sampledAs(t, "<|channel|>final<|message|>There.<|return|>"), Message{Role: User, Content: "Sure?"})
				require.NoError(t, err)
				require.True(t, fresh)
				require.Contains(t, c.codec.Decode(ids), "There.<|end|><|start|>user<|message|>Sure?<|end|><|start|>assistant")
				require.NotContains(t, c.codec.Decode(ids), "Hm.")
			}
		}
	}
}

func count(ids []int32, id int32) (n int) {
	for _, other := range ids {
		if other == id {
			n++
		}
	}
	return n
}

// A call that cannot be read is answered as a call; words in place of a message by the user.
func TestHarmonyFaultsAreTold(t *testing.T) {
	t.Parallel()
	for name, source := range harmonyTemplates(t) {
		c := harmonyOf(t, source)
		for text, want := range map[string]struct {
			tail  string
			fresh bool
		}{
			`<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query" "a"}<|call|>`: {"<|start|>functions.search to=assistant<|channel|>commentary<|message|>error: no<|end|><|start|>assistant", false},
			`Hello<|return|>`:                          {"<|start|>user<|message|>error: no<|end|><|start|>assistant", true},
			`<|channel|>commentary<|message|><|call|>`: {"<|start|>user<|message|>error: no<|end|><|start|>assistant", true},
		} {
			v, _, err := c.Begin([]Message{{Role: User, Content: "Where?"}}, searchTool())
			require.NoError(t, err)
			r, ended := v.Read(sampledAs(t, text))
			require.True(t, ended)
			require.NotEmpty(t, r.Fault)
			ids, fresh, err := v.Next(sampledAs(t, text), Message{Role: ToolRole, Content: "error: no"})
			require.NoError(t, err, "%s: %s", name, text)
			require.Equal(t, want.fresh, fresh, text)
			require.True(t, strings.HasSuffix(c.codec.Decode(ids), want.tail), "%s: %q", text, c.codec.Decode(ids))
		}
	}
}
