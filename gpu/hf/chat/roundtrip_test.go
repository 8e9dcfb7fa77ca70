package chat

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// formatsUnderTest has a chat for each format and header.
func formatsUnderTest(t testing.TB) map[string]*Chat {
	t.Helper()
	out := map[string]*Chat{
		"hermes": chatOf(t, qwen25), "hermes that thinks": chatOf(t, qwen3), "llama3": chatOf(t, llama), "qwen3_coder": chatOf(t, qwen35),
	}
	for name, source := range harmonyTemplates(t) {
		out["harmony, "+name] = harmonyOf(t, source)
	}
	for _, s := range []Style{{Format: FormatTag, Tags: map[string]string{"add": "plus"}}, {Format: FormatCode, Tool: "run"}, {Format: FormatFence, Tool: "run"}} {
		c, err := chatOf(t, qwen25).Styled(s)
		require.NoError(t, err)
		out[string(s.Format)] = c
		c, err = chatOf(t, qwen3).Styled(s)
		require.NoError(t, err)
		out[string(s.Format)+" that thinks"] = c
	}
	return out
}

// severalTools take words, code, and several arguments.
func severalTools() []Tool {
	return []Tool{
		{Name: "search", Description: "Finds.", Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"k":{"type":"integer"}},"required":["query"]}`)},
		{Name: "add", Description: "Adds.", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{},"c":{}},"required":["a","b"]}`)},
		{Name: "run", Description: "Runs.", Parameters: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`)},
	}
}

// hostile are texts that spell what the formats are made of.
func hostile() *rapid.Generator[string] {
	pieces := []string{
		"<tool_call>", "</tool_call>", "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|python_tag|>", "<function=x>", "</function>", "<parameter=a>", "</parameter>",
		"<think>", "</think>", "<|channel|>", "<|message|>", "<|start|>assistant", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>", " to=functions.x ",
		"<search>", "</search>", "<plus>", "</plus>", "<code>", "</code>", "```", "```python\n", "\n```\n", "````", "<information>", "</interpreter>",
		`{"name": "x", "arguments": {}}`, `{"query": "x"}`, `{"query": 1}`, `{"a": [1, {"b": null}]}`, `"`, `\`, `\"`, "\n", "\r\n", " ", "\t", "é", "日本", "\U0001f600", "\ufdd0", "e\u0301", "\u2028", "True", "None", "1.50", "x", "",
	}
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(pieces), rapid.String()), 0, 6).Draw(t, "pieces"), "")
	})
}

// nested is a value of JSON, in its text.
func nested(depth int) *rapid.Generator[json.RawMessage] {
	text := rapid.Map(hostile(), textJSON)
	plain := rapid.OneOf(text, rapid.SampledFrom([]json.RawMessage{json.RawMessage("null"), json.RawMessage("true"), json.RawMessage("1.50"), json.RawMessage("-3"), json.RawMessage("1e400"), json.RawMessage("[]"), json.RawMessage("{ }")}))
	if depth == 0 {
		return plain
	}
	return rapid.OneOf(plain, rapid.Custom(func(t *rapid.T) json.RawMessage {
		b := []byte("[")
		for i, v := range rapid.SliceOfN(nested(depth-1), 0, 3).Draw(t, "list") {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(b, v...)
		}
		return append(b, ']')
	}), rapid.Custom(func(t *rapid.T) json.RawMessage {
		b := []byte("{")
		for i, key := range rapid.SliceOfNDistinct(hostile(), 0, 3, rapid.ID[string]).Draw(t, "keys") {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, textJSON(key)...), ": "...), nested(depth-1).Draw(t, "value")...)
		}
		return append(b, '}')
	}))
}

func drawCall(t *rapid.T, c *Chat) Call {
	tool := rapid.SampledFrom([]string{"search", "add", "run"}).Draw(t, "tool")
	if f := c.Format(); f == FormatCode || f == FormatFence {
		tool = "run"
	}
	fields := map[string]json.RawMessage{}
	switch tool {
	case "search":
		fields["query"] = textJSON(hostile().Draw(t, "query"))
		if rapid.Bool().Draw(t, "with k") {
			fields["k"] = json.RawMessage("3")
		}
	case "add":
		fields["a"] = textJSON(hostile().Draw(t, "a"))
		fields["b"] = nested(2).Draw(t, "b")
		fields["c"] = nested(1).Draw(t, "c")
	case "run":
		fields["code"] = textJSON(hostile().Draw(t, "code"))
	}
	b := []byte("{")
	for i, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range fields {
			if !yield(name) {
				return
			}
		}
	}) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(append(b, textJSON(name)...), ": "...), fields[name]...)
	}
	return Call{Name: tool, Arguments: append(b, '}')}
}

// unwritable says that qwen3_coder has no way to write a call: a value spells the end of a parameter and what may come behind one, or
// is a text where the schema does not ask for it, which reads as what it looks like.
var unwritable = regexp.MustCompile(`</parameter>\s*<parameter=|</function>\s*</tool_call>|</parameter>\s*</function>\s*$`)

func writable(c *Chat, call Call) bool {
	if c.Format() != FormatQwen3Coder {
		return true
	}
	texts := textsOf(call.Name, severalTools())
	for _, f := range fieldsOf(call.Arguments) {
		var text string
		if json.Unmarshal(f.value, &text) != nil {
			text = string(f.value)
		} else if !texts[f.name] && !sameJSON(valueOf(text, false), f.value) {
			return false
		}
		if unwritable.MatchString(text) {
			return false
		}
	}
	return true
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return unmarshalNumbers(a, &x) == nil && unmarshalNumbers(b, &y) == nil && reflect.DeepEqual(x, y)
}

// What is written is read back, whatever it spells: as text and as the ids that a policy would sample.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	for name, c := range formatsUnderTest(t) {
		several := slices.Contains([]Format{FormatHermes, FormatQwen3Coder, FormatTag}, c.Format())
		rapid.Check(t, func(t *rapid.T) {
			var want []Call
			for range rapid.IntRange(1, map[bool]int{true: 3, false: 1}[several]).Draw(t, "calls") {
				call := drawCall(t, c)
				if !writable(c, call) {
					t.Skip("the format cannot say it")
				}
				want = append(want, call)
			}
			reply := Reply{Calls: want}
			if c.opener != "" || c.hasThoughts() && rapid.Bool().Draw(t, "thinks") || c.Format() == FormatHarmony {
				reply.Reasoning = "It is."
			}
			text := c.Write(want, severalTools()...)
			if reply.Reasoning != "" && c.Format() != FormatHarmony {
				text = "<think>\nIt is.\n</think>\n\n" + text
			}
			ids, err := c.Reply(reply, severalTools()...)
			require.NoError(t, err)
			got, ended := c.ParseIDs(ids, severalTools()...)
			require.True(t, ended)
			for how, r := range map[string]Reply{"text": c.Parse(strings.TrimPrefix(text, c.opener), severalTools()...), "ids": got} {
				require.Empty(t, r.Fault, "%s, %s: %s", name, how, text)
				require.Empty(t, r.Content, "%s, %s: %s", name, how, text)
				require.Len(t, r.Calls, len(want), "%s, %s: %s", name, how, text)
				for i, call := range r.Calls {
					require.Equal(t, want[i].Name, call.Name)
					require.True(t, sameJSON(want[i].Arguments, call.Arguments), "%s, %s: %s\nread %s\nwant %s", name, how, text, call.Arguments, want[i].Arguments)
				}
			}
			if c.Format() != FormatHarmony {
				return
			}
			// In ids a thought and words may spell the controls too.
			reply.Reasoning, reply.Content = hostile().Draw(t, "thought"), hostile().Draw(t, "words")
			if rapid.Bool().Draw(t, "answers") {
				reply.Calls = nil
			}
			ids, err = c.Reply(reply)
			require.NoError(t, err)
			got, ended = c.ParseIDs(ids)
			require.True(t, ended)
			require.Equal(t, strings.TrimSpace(reply.Reasoning), got.Reasoning)
			require.Equal(t, strings.TrimSpace(reply.Content), got.Content)
			require.Len(t, got.Calls, len(reply.Calls))
		})
	}
}

// fuzzParse reads any text: calls have a name and an object, and what is neither a call nor a fault nor a thought is content.
func fuzzParse(f *testing.F, chats map[string]*Chat, format Format, seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add(seed)
	}
	tools := severalTools()
	f.Fuzz(func(t *testing.T, text string) {
		for name, c := range chats {
			if c.Format() != format {
				continue
			}
			ids := c.codec.Encode(text)
			byIDs, _ := c.ParseIDs(ids, tools...)
			for _, r := range []Reply{c.Parse(text, tools...), byIDs} {
				for _, call := range r.Calls {
					require.NotEmpty(t, call.Name, name)
					var fields map[string]any
					require.NoError(t, unmarshalNumbers(call.Arguments, &fields), "%s: %s", name, call.Arguments)
					require.NotNil(t, fields, name)
				}
			}
			// A conversation takes every turn, and what a tool says of it.
			v, _, err := c.Begin([]Message{{Role: User, Content: "Where?"}}, tools)
			require.NoError(t, err)
			_, _, err = v.Next(ids, Message{Role: ToolRole, Name: "search", Content: text})
			require.NoError(t, err, "%s: %q", name, text)
		}
	})
}

func FuzzParseHarmony(f *testing.F) {
	fuzzParse(f, formatsUnderTest(f), FormatHarmony, `<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a"}<|call|>`,
		` to=functions.search<|channel|>commentary json<|message|>{"query": `, `<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>`,
		`<|start|><|message|><|message|><|end|>`, `<|start|>user<|message|>x`)
}

func FuzzParseTag(f *testing.F) {
	fuzzParse(f, formatsUnderTest(f), FormatTag, `<search>a</search>`, `<search>{"query": "a", "k": 1}</search>`, `<plus>{"a": 1}</plus><search>`, `<plus>1</plus>`)
}

func FuzzParseCode(f *testing.F) {
	fuzzParse(f, formatsUnderTest(f), FormatCode, "<code>\n```python\nx\n```\n</code>", "<code>x</code>", "<code>", "<code>```python\n</code>")
}

func FuzzParseFence(f *testing.F) {
	fuzzParse(f, formatsUnderTest(f), FormatFence, "```python\nx\n```\n", "````py\n```\n````", "```python\n", "a ```python \n```")
}
