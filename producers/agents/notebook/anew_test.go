package notebook_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// thinker is a policy that thinks and writes one cell in each turn; asked for a summary it writes one. It notes the contexts that it was asked in.
type thinker struct {
	codec *bpe.Tokenizer
	mu    sync.Mutex
	saw   []string
}

const (
	summaryAsked = "Sum up what you have done"
	summarySaid  = "the sum of it"
)

func (p *thinker) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	saw := p.codec.Decode(r.Tokens)
	p.saw = append(p.saw, saw)
	say := "<think>\n" + strings.Repeat("hm ", 10) + "\n</think>\n\nI compute.\n```python\nprint(1)\n```<|im_end|>"
	if strings.Contains(saw[strings.LastIndex(saw, "<|im_start|>user"):], summaryAsked) {
		say = summarySaid + "<|im_end|>"
	}
	ids := p.codec.Encode(say)
	ids = ids[:min(len(ids), r.MaxTokens)]
	return &generate.Result{Tokens: ids, Stop: schemas.GenerateStopToken, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids))}, nil
}

// prints answers every cell with the same text.
type prints string

func (prints) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "starlark"} }

func (p prints) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: string(p), Outputs: 1}, nil
}

// publishedTemplate is a model's chat template as its makers published it.
func publishedTemplate(t *testing.T, name string) string {
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
	require.Fail(t, "no such template", name)
	return ""
}

// think runs an episode of the thinker's in a chat.
func think(t *testing.T, template string, cfg notebook.Config, tool producers.Tool, limits schemas.Limits) (*schemas.Trajectory, *thinker, error) {
	t.Helper()
	codec, err := bpe.Parse(bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, []string{"<think>", "</think>"}))
	require.NoError(t, err)
	c, err := chat.New(chat.Source{Template: template, Vars: map[string]any{}}, codec)
	require.NoError(t, err)
	cfg.Notation, cfg.System = notebook.NotationChat, "Write code."
	a, err := notebook.New(cfg, agents.Opening{
		Tokenizer: codec, Tools: []producers.ToolSpec{tool.Spec()}, Log: slog.New(slog.DiscardHandler),
		Chat: func(map[string]any) (*chat.Chat, error) { return c, nil },
	})
	require.NoError(t, err)
	policy := &thinker{codec: codec}
	got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: "p", Text: "q"}, Sampling: schemas.Sampling{Temperature: 1}, Limits: limits,
	}, producers.Environment{Policy: policy, Tokenizer: codec, Agent: a, Tools: []producers.Tool{tool}, Reward: exact{}})
	return got, policy, err
}

// Templates by how they write the turns before the last message of the user's.
func rewritingTemplates(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"thoughts stay": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# </think> #}",
		"thoughts go":   publishedTemplate(t, "Qwen/Qwen3-0.6B"),
		"no thoughts":   publishedTemplate(t, "Qwen/Qwen2.5-7B-Instruct"),
	}
}

// Finding A3 of the agents' review: a template that writes earlier turns anew makes every context a new one, and none of them was trimmed.
func TestANotebookTrimsWhateverItsTemplateDoesWithEarlierTurns(t *testing.T) {
	t.Parallel()
	const most = 1000
	for name, template := range rewritingTemplates(t) {
		for _, trim := range []string{notebook.TrimHard, notebook.TrimSoft} {
			t.Run(name+", "+trim, func(t *testing.T) {
				t.Parallel()
				cfg := notebook.DefaultConfig()
				cfg.Trim, cfg.TurnTokens, cfg.SummaryTokens = trim, 150, 100
				got, policy, err := think(t, template, cfg, prints("some output of a cell"), schemas.Limits{MaxTokens: most, MaxTurns: 30})
				require.NoError(t, err)
				calls := 0
				for _, turn := range got.Turns {
					calls += len(turn.Calls)
				}
				require.Equal(t, 30, calls, "all cells are run")
				require.Equal(t, schemas.StopTurns, got.Stop)
				asked, shown, shortened := 0, 0, 0
				for i, saw := range policy.saw {
					require.LessOrEqual(t, len(policy.codec.Encode(saw)), most-100, "a context has room for what is sampled in it")
					if strings.Contains(saw, summaryAsked) {
						asked++
						require.Greater(t, len(saw), len(policy.saw[max(0, i-2)]), "the context that is summed up is the old one")
					}
					if strings.Contains(saw, summarySaid) {
						shown++
					}
					if i > 0 && len(saw) < len(policy.saw[i-1])/2 {
						shortened++
						require.Contains(t, saw, "some output of a cell", "the last turn is kept")
					}
				}
				require.Positive(t, shortened)
				require.Equal(t, trim == notebook.TrimSoft, asked > 0, "a summary is asked for")
				require.Equal(t, trim == notebook.TrimSoft, shown > 0, "and shown")
			})
		}
	}
}

// A long output does not cost the summary: it is asked for in the context as it was when the policy wrote its cell.
func TestALongOutputIsLeftToTheNextContext(t *testing.T) {
	t.Parallel()
	for name, template := range rewritingTemplates(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := notebook.DefaultConfig()
			cfg.Trim, cfg.TurnTokens, cfg.SummaryTokens = notebook.TrimSoft, 150, 100
			long := strings.Repeat("x", 500)
			got, policy, err := think(t, template, cfg, prints(long), schemas.Limits{MaxTokens: 1000, MaxTurns: 4})
			require.NoError(t, err)
			require.Equal(t, schemas.StopTurns, got.Stop)
			asked := 0
			for i, saw := range policy.saw {
				if strings.Contains(saw, summaryAsked) {
					asked++
					require.NotContains(t, saw[strings.LastIndex(saw, "<|im_start|>user"):], long)
					require.Contains(t, policy.saw[i+1], long)
					require.Contains(t, policy.saw[i+1], summarySaid)
				}
			}
			require.Positive(t, asked)
		})
	}
}

// What the template does not write of what the policy or its code said ends the episode for its form, and is trained on.
func TestWhatTheTemplateRefusesOfATurnEndsTheEpisode(t *testing.T) {
	t.Parallel()
	const refuses = "{% for m in messages %}{% if 'boom' in m.content %}{{ raise_exception('no') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	got, _, err := think(t, refuses, notebook.DefaultConfig(), prints("boom"), schemas.Limits{MaxTokens: 1000, MaxTurns: 30})
	require.NoError(t, err)
	require.Equal(t, schemas.StopFormat, got.Stop)
	require.Len(t, got.Turns, 1)
}
