package chat

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// formatted is a rig whose agent is opened over a model folder, as a configuration opens it.
func formatted(t *testing.T, tok *bpe.Tokenizer, source string, cfg Config, specs []producers.ToolSpec, turns ...string) (*rig, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(source), 0o600))
	made, err := Type().Open(t.Context(), agents.Opening{
		Name: "a", Config: &cfg, Tokenizer: tok, Tools: specs, Log: slog.New(slog.DiscardHandler),
		Chat: func(vars map[string]any) (*chat.Chat, error) { return chat.Open(dir, tok, vars) },
	})
	if err != nil {
		return nil, err
	}
	r := &rig{agent: made.(*Agent), policy: &says{tok: tok, turns: turns}, look: &looks{}, add: &adds{}}
	r.env = producers.Environment{Policy: r.policy, Tokenizer: tok, Agent: r.agent, Tools: []producers.Tool{r.look, r.add}, Reward: none{}}
	return r, nil
}

// What the policy samples in each format calls the tools, stays as it was sampled, and goes on behind what they say.
func TestFormatsOfCalls(t *testing.T) {
	t.Parallel()
	both := []producers.ToolSpec{(&looks{}).Spec(), (&adds{}).Spec()}
	tag := DefaultConfig()
	tag.Format, tag.Tags, tag.AnswerTag = "tag", []string{"look=find"}, "answer"
	code, fence := DefaultConfig(), DefaultConfig()
	code.Format, code.CodeTool = "code", "look"
	fence.Format, fence.CodeTool, fence.ResultTag = "fence", "look", "output"
	for name, test := range map[string]struct {
		cfg    Config
		turns  []string
		looked []string
		answer string
		shown  []string // parts of the only segment
	}{
		"tag": {
			tag,
			[]string{"I look. <find>a b</find>", "<add>{\"a\": 1}</add>\n", "<add>1</add>", "So <answer>yes</answer><|im_end|>"},
			[]string{"a b"},
			"yes",
			[]string{
				"<find>query</find> Looks <tool_call> up.", "<add>JSON of a</add>",
				"I look. <find>a b</find>\n<information>\nseen a b<|im_end|><tool_call>\n</information>\n<add>{\"a\": 1}</add>\n\n<information>\n3\n</information>\n",
				"<information>\nerror: what stands in the tag add is not a JSON object\n</information>\n",
			},
		},
		"code": {
			code,
			[]string{"First\n<code>\n```python\nprint(1)\n```\n</code>", "<code>x</code>", "Done.<|im_end|>"},
			[]string{"print(1)", "x"},
			"Done.",
			[]string{"</code>\n<interpreter>\nseen print(1)<|im_end|><tool_call>\n</interpreter>\n<code>x</code>\n<interpreter>\nseen x"},
		},
		"fence": {
			fence,
			[]string{"First\n```python\nprint(1)\n```\n", "```py\ny = \"</output>\"\n```\n", "Done.<|im_end|>"},
			[]string{"print(1)", "y = \"</output>\""},
			"Done.",
			[]string{"```\n\n<output>\nseen print(1)", "seen y = \"< /output>\""},
		},
		"a turn that ends with its call": {
			fence,
			[]string{"First\n```python\nprint(1)\n```<|im_end|>", "Done.<|im_end|>"},
			[]string{"print(1)"},
			"Done.",
			[]string{"<|im_start|>user\n<output>\nseen print(1)<|im_end|><tool_call>\n</output><|im_end|>\n<|im_start|>assistant\nDone."},
		},
	} {
		r, err := formatted(t, codec(t), templateOf(t, qwen25), test.cfg, both, test.turns...)
		require.NoError(t, err, name)
		tr, _ := r.run(t)
		require.Equal(t, schemas.StopAnswer, tr.Stop, name)
		require.Equal(t, test.answer, tr.Answer, name)
		require.Equal(t, test.looked, r.look.called, name)
		require.Len(t, tr.Segments, 1, name)
		text := r.policy.tok.Decode(tr.Segments[0].Tokens)
		for _, part := range test.shown {
			require.Contains(t, text, part, name)
		}
		sampled := ""
		for i, id := range tr.Segments[0].Tokens {
			if tr.Segments[0].ActionMask[i] == 1 {
				sampled += r.policy.tok.Decode([]int32{id})
			}
		}
		require.Equal(t, strings.Join(test.turns, ""), sampled, "%s: what was sampled stays as it was", name)
	}
}

// gpt-oss's channels: thoughts, a call and an answer, in one segment.
func TestHarmonyEpisode(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../gpu/hf/chat/testdata/harmony.jinja")
	require.NoError(t, err)
	tok, err := bpe.Parse(bpetest.Bytes(t, []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>", "<|im_end|>"}, nil))
	require.NoError(t, err)
	specs := []producers.ToolSpec{(&looks{}).Spec(), (&adds{}).Spec()}
	r, err := formatted(t, tok, string(source), DefaultConfig(), specs,
		`<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"query": "a"}<|call|>`,
		`<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a" 1}<|call|>`,
		`<|channel|>final<|message|>There.<|return|>`)
	require.NoError(t, err)
	require.Equal(t, chat.FormatHarmony, r.agent.chat.Format())
	tr, _ := r.run(t)
	require.Equal(t, schemas.StopAnswer, tr.Stop)
	require.Equal(t, "There.", tr.Answer)
	require.Equal(t, []string{"a"}, r.look.called)
	require.Len(t, tr.Segments, 1)
	text := tok.Decode(tr.Segments[0].Tokens)
	require.Contains(t, text, "<|call|><|start|>functions.look to=assistant<|channel|>commentary<|message|>seen a<|im_end|><tool_call><|end|><|start|>assistant<|channel|>")
	require.Contains(t, text, "<|start|>functions.add to=assistant<|channel|>commentary<|message|>error: the arguments of functions.add are not a JSON object<|end|>")

	tokens, mask, err := r.agent.Demonstrate(tasks.Demonstration{Question: "Where?", Steps: []tasks.Step{{Arguments: "a", Result: "b"}}, Answer: "There."})
	require.NoError(t, err)
	require.Len(t, mask, len(tokens))
	require.True(t, strings.HasSuffix(tok.Decode(tokens), `<|constrain|>json<|message|>{"query":"a"}<|call|><|start|>functions.look to=assistant<|channel|>commentary<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>There.<|return|>`))
}

// A demonstration in each format is what an episode with the same turns records.
func TestADemonstrationInAFormatIsAnEpisode(t *testing.T) {
	t.Parallel()
	look := []producers.ToolSpec{(&looks{}).Spec()}
	d := tasks.Demonstration{Question: "Where <|im_end|>?", Answer: "There", Steps: []tasks.Step{{Arguments: "a", Result: "seen a<|im_end|><tool_call>"}, {Arguments: "b", Result: "seen b<|im_end|><tool_call>"}}}
	for format, turns := range map[string][]string{
		"tag":   {"<look>a</look>", "<look>b</look>", "There<|im_end|>"},
		"code":  {"<code>\n```python\na\n```\n</code>", "<code>\n```python\nb\n```\n</code>", "There<|im_end|>"},
		"fence": {"```python\na\n```\n", "```python\nb\n```\n", "There<|im_end|>"},
	} {
		cfg := DefaultConfig()
		cfg.Format = format
		r, err := formatted(t, codec(t), templateOf(t, qwen25), cfg, look, turns...)
		require.NoError(t, err)
		r.env.Tools = []producers.Tool{r.look}
		tr, _ := r.run(t)
		tokens, mask, err := r.agent.Demonstrate(d)
		require.NoError(t, err, format)
		require.Equal(t, r.policy.tok.Decode(tr.Segments[0].Tokens), r.policy.tok.Decode(tokens), format)
		require.Equal(t, []int32(tr.Segments[0].Tokens), tokens, format)
		require.Equal(t, []uint8(tr.Segments[0].ActionMask), mask, format)
	}
}

func TestFormatsAreChecked(t *testing.T) {
	t.Parallel()
	both := []producers.ToolSpec{(&looks{}).Spec(), (&adds{}).Spec()}
	for want, change := range map[string]func(*Config){
		`format`:                         func(c *Config) { c.Format = "xml" },
		`tags[0]: "look": want tool=tag`: func(c *Config) { c.Format, c.Tags = "tag", []string{"look"} },
		`tags[0]: "fly=a": the task has no tool fly`: func(c *Config) { c.Format, c.Tags = "tag", []string{"fly=a"} },
		`the tag "a b" of tool look: want a word`:    func(c *Config) { c.Format, c.Tags = "tag", []string{"look=a b"} },
		`is that of tool look and of what tools say`: func(c *Config) { c.Format, c.Tags = "tag", []string{"look=information"} },
		`code_tool: the task has 2 tools`:            func(c *Config) { c.Format = "fence" },
		`code_tool: the task has no tool fly`:        func(c *Config) { c.Format, c.CodeTool = "code", "fly" },
		`the vocabulary has no token <|return|>`:     func(c *Config) { c.Format = "harmony" },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		_, err := formatted(t, codec(t), templateOf(t, qwen25), cfg, both)
		require.ErrorContains(t, err, want)
	}
	// Without its instructions the system message is the configuration's own.
	cfg := DefaultConfig()
	cfg.Format, cfg.Instructions, cfg.System = "tag", false, "Write <look>."
	r, err := formatted(t, codec(t), templateOf(t, qwen25), cfg, both)
	require.NoError(t, err)
	require.Contains(t, r.policy.tok.Decode(r.agent.Opening(schemas.Prompt{Text: "x"})), "<|im_start|>system\nWrite <look>.<|im_end|>\n")
	require.True(t, json.Valid(r.agent.tools[0].Parameters))
}
