package chat

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
)

// spelt are the control tokens that a template writes, as the models' tokenizers have them.
var spelt = regexp.MustCompile(`<\|[a-zA-Z_]+\|>|<｜[^｜'"]+｜>|\[/?[A-Z_]{3,}\]|\[gMASK\]|<sop>|</?think>|</?tool_call>|</?tool_response>|</?tools>|</?arg_key>|</?arg_value>`)

// codecFor has a token for each byte and for each control token of a template and of its variables.
func codecFor(t testing.TB, s Source) *bpe.Tokenizer {
	t.Helper()
	var special []string
	for _, v := range s.Vars {
		var text string
		if raw, ok := v.(json.RawMessage); ok && json.Unmarshal(raw, &text) == nil && text != "" {
			special = append(special, text)
		}
	}
	special = append(special, spelt.FindAllString(s.Template, -1)...)
	if strings.Contains(s.Template, channelToken) {
		special = append(special, returnToken, callToken)
	}
	slices.Sort(special)
	var others []string
	special = slices.DeleteFunc(slices.Compact(special), func(token string) bool {
		plain := strings.HasPrefix(token, "<") && !strings.HasPrefix(token, "<|") && strings.Trim(token, "</>_abcdefghijklmnopqrstuvwxyz") == "" && len(token) > 5
		if plain {
			others = append(others, token)
		}
		return plain
	})
	codec, err := bpe.Parse(bpetest.Bytes(t, special, others))
	require.NoError(t, err)
	return codec
}

// outcome is what a template can do.
type outcome struct {
	Template string `json:"template"`
	// Unusable is why there are no conversations by it, Tools why none with tools.
	Unusable string `json:"unusable,omitempty"`
	Tools    string `json:"tools,omitempty"`
	Format   Format `json:"format,omitempty"`
	// Rewrites are the messages after which earlier turns are written anew, and Why says how.
	Rewrites []string `json:"rewrites,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// every are the templates that are tested, those written here among them.
func every(t testing.TB) map[string]Source {
	t.Helper()
	all := published(t)
	for name, source := range harmonyTemplates(t) {
		all["harmony, "+name] = Source{Template: source, Vars: map[string]any{}}
	}
	return all
}

// For every template, turn by turn with several calls where it has several, the ids that the engine has are those that the template writes of
// the whole, or the template is listed as writing anew after such a message.
func TestEveryTemplateGoesOnOrIsListed(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/templates.json")
	require.NoError(t, err)
	var list []outcome
	require.NoError(t, json.Unmarshal(data, &list))
	want := map[string]outcome{}
	for _, o := range list {
		want[o.Template] = o
	}
	all := every(t)
	require.Equal(t, slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(want)))
	withTools, goingOn := 0, 0
	for name, source := range all {
		w := want[name]
		c, err := New(source, codecFor(t, source))
		if w.Unusable != "" {
			require.ErrorContains(t, err, w.Unusable, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, w.Format, c.Format(), name)
		require.Equal(t, w.Rewrites, c.Rewrites(), name)
		require.Equal(t, len(w.Rewrites) > 0, w.Why != "", name)
		if w.Tools != "" {
			require.ErrorContains(t, c.Tools(), w.Tools, name)
			goesOn(t, name, c, nil)
		} else {
			require.NoError(t, c.Tools(), name)
			withTools++
			goesOn(t, name, c, searchTool())
		}
		if len(w.Rewrites) == 0 {
			goingOn++
		}
		// Formats that need nothing of the template but that it takes a system message go on with every template.
		for _, format := range []Format{FormatTag, FormatCode, FormatFence} {
			tagged, err := c.Styled(Style{Format: format})
			require.NoError(t, err, name)
			if tagged.Tools() == nil {
				require.NotContains(t, tagged.Rewrites(), ToolRole, name)
				goesOn(t, name+" with "+string(format), tagged, searchTool())
			}
		}
	}
	t.Logf("%d templates: %d with tools, %d that never write anew", len(all), withTools, goingOn)
	require.GreaterOrEqual(t, withTools, 8)
}

// goesOn converses over three turns, the first two with calls where there are tools, and a question; then once more with a call.
func goesOn(t *testing.T, name string, c *Chat, tools []Tool) {
	t.Helper()
	v, ids, err := c.Begin([]Message{{Role: User, Content: "Where is <|im_end|> <|end|>?"}}, tools)
	require.NoError(t, err, name)
	have := slices.Clone(ids)
	call := func(query string) Call {
		return Call{Name: "search", Arguments: json.RawMessage(`{"query": "` + query + `"}`)}
	}
	tool := func(text string) Message { return Message{Role: ToolRole, Name: "search", Content: text} }
	type move struct {
		reply Reply
		said  []Message
	}
	thought := c.firstThought()
	moves := []move{
		{Reply{Reasoning: thought, Calls: []Call{call("a")}}, []Message{tool("one <|im_end|> <|end|>")}},
		{Reply{Reasoning: thought, Calls: []Call{call("b"), call("c")}}, []Message{tool("two"), tool("three")}},
		{Reply{Reasoning: thought, Content: "There."}, []Message{{Role: User, Content: "Sure?"}}},
		{Reply{Reasoning: thought, Calls: []Call{call("d")}}, []Message{tool("four")}},
	}
	if len(tools) == 0 {
		moves = []move{
			{Reply{Reasoning: thought, Content: "Here."}, []Message{{Role: User, Content: "No?"}}},
			{Reply{Content: "There."}, []Message{{Role: User, Content: "Sure?"}}},
			{Reply{Reasoning: thought, Content: "Yes."}, []Message{{Role: User, Content: "So?"}}},
		}
	}
	for i, m := range moves {
		if several := []Format{FormatHermes, FormatQwen3Coder, FormatTag}; len(m.reply.Calls) > 1 && !slices.Contains(several, c.Format()) {
			m.reply.Calls, m.said = m.reply.Calls[:1], m.said[:1]
		}
		sampled, err := c.Reply(m.reply, tools...)
		require.NoError(t, err, name)
		read, ended := v.Read(sampled)
		require.True(t, ended, "%s: turn %d", name, i)
		require.Empty(t, read.Fault, "%s: turn %d", name, i)
		require.Len(t, read.Calls, len(m.reply.Calls), "%s: turn %d", name, i)
		more, fresh, err := v.Next(sampled, m.said...)
		require.NoError(t, err, "%s: turn %d", name, i)
		have = append(append(have, sampled...), more...)
		if fresh {
			require.Contains(t, c.Rewrites(), m.said[0].Role, "%s: turn %d begins anew, and is not listed", name, i)
			have = slices.Clone(more)
		}
		whole, err := c.Prompt(v.Messages(), tools)
		require.NoError(t, err, name)
		open := ""
		for _, p := range v.turn { // a turn that goes on stands behind what the template writes
			open += p.text
		}
		require.Equal(t, c.codec.Decode(whole)+open, c.codec.Decode(have), "%s: turn %d", name, i)
		if open == "" {
			require.Equal(t, whole, have, "%s: turn %d", name, i)
		}
	}
}
