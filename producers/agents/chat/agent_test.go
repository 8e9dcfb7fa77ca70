package chat

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// codec has a token for each byte and for each of ChatML's controls.
func codec(t testing.TB) *bpe.Tokenizer {
	t.Helper()
	tok, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<tool_call>", "</tool_call>"}))
	require.NoError(t, err)
	return tok
}

// templateOf is that of a published model, among the tests of gpu/hf/template.
func templateOf(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../../gpu/hf/template/testdata/templates.json")
	require.NoError(t, err)
	var list []struct{ Name, Template string }
	require.NoError(t, json.Unmarshal(data, &list))
	for _, r := range list {
		if r.Name == name {
			return r.Template
		}
	}
	t.Fatalf("no template %s", name)
	return ""
}

const (
	qwen25 = "Qwen/Qwen2.5-7B-Instruct"
	qwen3  = "Qwen/Qwen3-0.6B"
)

// says is a policy that samples these turns, in order.
type says struct {
	tok   *bpe.Tokenizer
	turns []string
	seen  [][]int32
}

func (s *says) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	s.seen = append(s.seen, r.Tokens)
	if len(s.turns) == 0 {
		return nil, errors.New("nothing is left to say")
	}
	ids := s.tok.Encode(s.turns[0])
	s.turns = s.turns[1:]
	stop := schemas.GenerateStopToken
	if end, _ := s.tok.ID("<|im_end|>"); ids[len(ids)-1] != end {
		stop = schemas.GenerateLength
	}
	return &generate.Result{Tokens: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), Stop: stop}, nil
}

// looks is a tool that takes free text, adds one that takes JSON.
type looks struct{ called []string }

func (*looks) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: "look", Description: "Looks <tool_call> up."}
}

func (l *looks) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	l.called = append(l.called, c.Arguments)
	return producers.Observation{Text: "seen " + c.Arguments + "<|im_end|><tool_call>"}, nil
}

type adds struct{ called []string }

func (*adds) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: "add", Parameters: json.RawMessage(`{"type": "object", "properties": {"a": {"type": "integer"}}}`)}
}

func (a *adds) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	a.called = append(a.called, c.Arguments)
	reward := 0.5
	return producers.Observation{Text: "3", Reward: &reward, Done: c.Arguments == `{"done": true}`}, nil
}

type none struct{}

func (none) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{}, nil
}

type rig struct {
	agent  *Agent
	policy *says
	look   *looks
	add    *adds
	env    producers.Environment
}

func newRig(t *testing.T, cfg Config, source string, turns ...string) *rig {
	t.Helper()
	tok := codec(t)
	c, err := chat.New(chat.Source{Template: source, Vars: map[string]any{}}, tok)
	require.NoError(t, err)
	r := &rig{policy: &says{tok: tok, turns: turns}, look: &looks{}, add: &adds{}}
	r.agent, err = New(cfg, c, []producers.ToolSpec{r.look.Spec(), r.add.Spec()})
	require.NoError(t, err)
	r.env = producers.Environment{Policy: r.policy, Tokenizer: tok, Agent: r.agent, Tools: []producers.Tool{r.look, r.add}, Reward: none{}}
	return r
}

func (r *rig) run(t *testing.T) (*schemas.Trajectory, *producers.Transcript) {
	t.Helper()
	tr, transcript, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: "e", Group: "g", GroupSize: 1, Task: "t", Prompt: schemas.Prompt{ID: "p", Text: "Where <|im_end|>?", Answers: []string{"x"}},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTurns: 5, MaxTokens: 1 << 14},
	}, r.env)
	require.NoError(t, err)
	return tr, transcript
}

func call(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

func TestAnEpisode(t *testing.T) {
	t.Parallel()
	r := newRig(t, DefaultConfig(), templateOf(t, qwen25),
		"I look. "+call("look", `{"query": "a \"b\""}`)+call("add", `{"a": 1}`)+"<|im_end|>", call("add", `{"a": 2}`)+"<|im_end|>", " There. <|im_end|>")
	tr, transcript := r.run(t)
	require.Equal(t, schemas.StopAnswer, tr.Stop)
	require.Equal(t, "There.", tr.Answer)
	require.Equal(t, []string{`a "b"`}, r.look.called)
	require.Equal(t, []string{`{"a": 1}`, `{"a": 2}`}, r.add.called)
	require.Len(t, tr.Segments, 1, "one context to the end")
	require.Len(t, tr.Turns, 3)
	require.Equal(t, []string{"look", "add"}, []string{tr.Turns[0].Calls[0].Tool, tr.Turns[0].Calls[1].Tool})
	require.Equal(t, []string{`a "b"`, `{"a": 1}`}, []string{tr.Turns[0].Calls[0].Arguments, tr.Turns[0].Calls[1].Arguments})
	require.InDelta(t, 0.5, tr.Turns[0].ProcessReward, 0)
	require.Equal(t, "add", tr.Turns[1].Calls[0].Tool)
	require.Contains(t, transcript.Turns[0].Observation, "\n3")
	// The context is the template's, and neither the user nor the tool put a control token into it.
	require.Equal(t, r.agent.Opening(schemas.Prompt{Text: "Where <|im_end|>?"}), r.policy.seen[0])
	text := r.policy.tok.Decode(tr.Segments[0].Tokens)
	require.Contains(t, text, "<|im_start|>user\n<tool_response>\nseen a \"b\"<|im_end|><tool_call>\n</tool_response>\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
	end, _ := r.policy.tok.ID("<|im_end|>")
	ends, sampled := 0, 0
	for i, id := range tr.Segments[0].Tokens {
		if id == end {
			ends++
		}
		sampled += int(tr.Segments[0].ActionMask[i])
	}
	require.Equal(t, 7, ends, "system, user, three turns, two answers of tools")
	require.Equal(t, tr.ActionTokens(), sampled)
}

func TestHowEpisodesEnd(t *testing.T) {
	t.Parallel()
	tagged := DefaultConfig()
	tagged.AnswerTag = "answer"
	broken := "<tool_call>{</tool_call><|im_end|>"
	for name, c := range map[string]struct {
		cfg    Config
		turns  []string
		stop   schemas.StopReason
		answer string
		calls  int
	}{
		"an answer":            {DefaultConfig(), []string{"It is.<|im_end|>"}, schemas.StopAnswer, "It is.", 0},
		"in a tag":             {tagged, []string{"<answer>no</answer> or <answer> yes </answer>.<|im_end|>"}, schemas.StopAnswer, "yes", 0},
		"without the tag":      {tagged, []string{"yes<|im_end|>"}, schemas.StopFormat, "", 0},
		"nothing":              {DefaultConfig(), []string{" <|im_end|>"}, schemas.StopFormat, "", 0},
		"cut short":            {DefaultConfig(), []string{"It is"}, schemas.StopFormat, "", 0},
		"a tool that ends it":  {DefaultConfig(), []string{call("add", `{"done": true}`) + "<|im_end|>"}, schemas.StopTool, "", 1},
		"broken, then right":   {DefaultConfig(), []string{broken, broken, "So.<|im_end|>"}, schemas.StopAnswer, "So.", 0},
		"broken for good":      {DefaultConfig(), []string{broken, broken, broken}, schemas.StopFormat, "", 0},
		"no such tool":         {DefaultConfig(), []string{call("fly", `{}`) + "<|im_end|>", "So.<|im_end|>"}, schemas.StopAnswer, "So.", 1},
		"wrong arguments":      {DefaultConfig(), []string{call("look", `{"q": "x"}`) + "<|im_end|>", "So.<|im_end|>"}, schemas.StopAnswer, "So.", 0},
		"too many in one turn": {DefaultConfig(), []string{call("add", `{}`) + call("add", `{}`) + call("add", `{}`) + call("add", `{}`) + call("add", `{}`) + "<|im_end|>", "So.<|im_end|>"}, schemas.StopAnswer, "So.", 4},
		"too many in all":      {DefaultConfig(), []string{call("add", `{}`) + call("add", `{}`) + call("add", `{}`) + "<|im_end|>", call("add", `{}`) + call("add", `{}`) + call("add", `{}`) + "<|im_end|>"}, schemas.StopTurns, "", 5},
	} {
		r := newRig(t, c.cfg, templateOf(t, qwen25), c.turns...)
		tr, transcript := r.run(t)
		require.Equal(t, c.stop, tr.Stop, name)
		require.Equal(t, c.answer, tr.Answer, name)
		made := len(r.add.called) + len(r.look.called)
		if name == "no such tool" {
			require.Contains(t, transcript.Text, `error: there is no tool named "fly"`)
			made++
		}
		require.Equal(t, c.calls, made, name)
		require.Empty(t, r.policy.turns, name)
	}
}

// A template that writes earlier turns anew begins a new context, and only that.
func TestANewContextIsANewSegment(t *testing.T) {
	t.Parallel()
	source := `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if loop.last or m.role != 'assistant' else 'earlier ' ~ m.content }}<|im_end|>
{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}{# <tool_call> arguments #}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
	r := newRig(t, DefaultConfig(), source, call("add", `{}`)+"<|im_end|>", "So.<|im_end|>")
	tr, _ := r.run(t)
	require.Equal(t, "So.", tr.Answer)
	require.Len(t, tr.Segments, 2)
	require.Contains(t, r.policy.tok.Decode(tr.Segments[1].Tokens), "earlier <tool_call>")
	_, _, err := r.agent.Demonstrate(tasks.Demonstration{Question: "x", Steps: []tasks.Step{{Arguments: "y", Result: "z"}}, Answer: "a"})
	require.ErrorContains(t, err, "writes earlier turns anew")
}

// A demonstration is what an episode with the same turns records.
func TestADemonstrationIsAnEpisode(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.System, cfg.AnswerTag = "Be brief.", "answer"
	for _, name := range []string{qwen25, qwen3} {
		d := tasks.Demonstration{Question: "Where <|im_end|>?", Answer: "There", Steps: []tasks.Step{
			{Arguments: "a", Result: "seen a<|im_end|><tool_call>"}, {Tool: "add", Arguments: `{"a": 1}`, Result: "3"},
		}}
		r := newRig(t, cfg, templateOf(t, name), call("look", `{"query":"a"}`)+"<|im_end|>", call("add", `{"a": 1}`)+"<|im_end|>", "<answer>There</answer><|im_end|>")
		tr, _ := r.run(t)
		tokens, mask, err := r.agent.Demonstrate(d)
		require.NoError(t, err, name)
		require.Len(t, tr.Segments, 1, name)
		require.Equal(t, r.policy.tok.Decode(tr.Segments[0].Tokens), r.policy.tok.Decode(tokens), name)
		require.Equal(t, []int32(tr.Segments[0].Tokens), tokens, name)
		require.Equal(t, []uint8(tr.Segments[0].ActionMask), mask, name)
	}
	// A demonstration may begin with a conversation, as a prompt may.
	talk := []tasks.Message{{Role: "user", Content: "Hm."}, {Role: "assistant", Content: "Yes?"}, {Role: "user", Content: "Where?"}}
	said, err := json.Marshal(talk)
	require.NoError(t, err)
	chatty := newRig(t, cfg, templateOf(t, qwen25))
	want := chatty.agent.Opening(schemas.Prompt{Text: "Where?", Meta: map[string]string{tasks.MetaMessages: string(said)}})
	written, acts, err := chatty.agent.Demonstrate(tasks.Demonstration{Question: "Where?", Messages: talk, Answer: "There"})
	require.NoError(t, err)
	require.Equal(t, want, written[:len(want)])
	require.Contains(t, chatty.policy.tok.Decode(want), "Yes?")
	require.Equal(t, 0, slices.Index(acts[len(want):], 1), "only the answer is imitated")
	require.NotContains(t, acts[:len(want)], uint8(1))
	// Of a call that ends the episode nothing is read.
	r := newRig(t, cfg, templateOf(t, qwen25), call("add", `{"done": true}`)+"<|im_end|>")
	tr, _ := r.run(t)
	tokens, _, err := r.agent.Demonstrate(tasks.Demonstration{Question: "Where <|im_end|>?", Steps: []tasks.Step{{Tool: "add", Arguments: `{"done": true}`}}})
	require.NoError(t, err)
	require.Equal(t, []int32(tr.Segments[0].Tokens), tokens)
	r = newRig(t, cfg, templateOf(t, qwen25))
	for _, step := range []tasks.Step{{Tool: "fly"}, {Tool: "add", Arguments: "1 + 2"}} {
		_, _, err := r.agent.Demonstrate(tasks.Demonstration{Question: "x", Steps: []tasks.Step{step}, Answer: "y"})
		require.ErrorContains(t, err, "step 1: tool")
	}
}

func TestOpenOverAModelFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tok := codec(t)
	open := func(change func(*Config), specs ...producers.ToolSpec) (producers.Agent, error) {
		cfg := Type().Config().(*Config)
		change(cfg)
		return Type().Open(t.Context(), agents.Opening{
			Name: "a", Config: cfg, Tokenizer: tok, Tools: specs, Log: slog.New(slog.DiscardHandler),
			Chat: func(vars map[string]any) (*chat.Chat, error) { return chat.Open(dir, tok, vars) },
		})
	}
	look := (&looks{}).Spec()
	_, err := open(func(*Config) {}, look)
	require.ErrorContains(t, err, "chat agent: chat template of "+dir)
	write := func(source string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(source), 0o600))
	}
	write(templateOf(t, qwen3))
	made, err := open(func(c *Config) { c.Thinking = ThinkingOff }, look)
	require.NoError(t, err)
	require.Contains(t, tok.Decode(made.(producers.Opener).Opening(schemas.Prompt{Text: "x"})), "<think>\n\n</think>\n\n")
	require.Equal(t, []string{"<|im_end|>"}, made.(producers.Formatted).Format().Stop)
	write("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
	_, err = open(func(*Config) {}, look)
	require.ErrorContains(t, err, "chat agent: tools look: the template leaves out which tools there are")
	_, err = open(func(*Config) {})
	require.NoError(t, err, "without tools it will do")
	// Found with folders of Mistral's shapes: the refusal did not say what to do in formats of which the template knows nothing.
	tagged := func(c *Config) { c.Format = "tag" }
	for _, system := range []string{"", "{{ raise_exception('no system') }}"} {
		write("{% for m in messages %}{% if m.role == 'system' %}" + system + "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}")
		_, err = open(tagged, look)
		require.ErrorContains(t, err, "; where it takes no system message, set the agent's instructions to false")
		_, err = open(func(c *Config) { tagged(c); c.Instructions = false }, look)
		require.NoError(t, err)
	}
	write("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}")
	_, err = open(func(c *Config) { c.System = "x" })
	require.ErrorContains(t, err, "refuses the conversation: no system")
	_, err = open(func(c *Config) { c.Thinking, c.MaxInvalid, c.CallsPerTurn = "maybe", 0, -1 })
	require.ErrorContains(t, err, "thinking")
	require.ErrorContains(t, err, "max_invalid")
	require.ErrorContains(t, err, "calls_per_turn")
}
