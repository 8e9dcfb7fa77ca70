package notebook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func words(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Config{
		Special: append([]string{"<unk>", "<bos>"}, notebook.Tags()...), Unknown: "<unk>", Lowercase: true,
		Words: tokenizer.Words("a b c d e f g what is it ? . note one two three submit ( ) there no cell in this turn more than was cut error the"),
	})
	require.NoError(t, err)
	return tok
}

// says is a policy that writes the next line of a script, and notes the contexts that it was asked in.
type says struct {
	tok   *tokenizer.Tokenizer
	lines []string
	mu    sync.Mutex
	saw   []string
}

func (p *says) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		return nil, errors.New("the script is over")
	}
	g := &generate.Result{Stop: schemas.GenerateStopToken, Tokens: p.tok.Encode(p.lines[0])}
	p.saw, p.lines = append(p.saw, p.tok.Decode(r.Tokens)), p.lines[1:]
	if len(g.Tokens) > r.MaxTokens {
		g.Tokens, g.Stop = g.Tokens[:r.MaxTokens], schemas.GenerateLength
	}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

// cells answers a cell by a table; "submit ( x )" submits x, and "note x" makes x the notes.
type cells map[string]string

func (cells) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "starlark"} }

func (c cells) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	cell := call.Arguments
	if rest, ok := strings.CutPrefix(cell, "submit ( "); ok {
		answer := strings.TrimSuffix(rest, " )")
		return producers.Observation{Answer: &answer}, nil
	}
	if rest, ok := strings.CutPrefix(cell, "note "); ok {
		return producers.Observation{Notes: rest}, nil
	}
	text, ok := c[cell]
	if !ok {
		return producers.Observation{}, fmt.Errorf("no %s", cell)
	}
	return producers.Observation{Text: text, Notes: c["notes"]}, nil
}

type exact struct{}

func (exact) Score(_ context.Context, _ *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	return producers.Score{Total: float64(len(t.Answer))}, nil
}

// rollout runs an episode of the script.
func rollout(t *testing.T, cfg notebook.Config, tool producers.Tool, limits schemas.Limits, lines ...string) (*schemas.Trajectory, *says) {
	t.Helper()
	tok := words(t)
	agent, err := notebook.New(cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{tool.Spec()}})
	require.NoError(t, err)
	policy := &says{tok: tok, lines: lines}
	got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: "p", Text: "what is it ?", Answers: []string{"d"}},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: limits,
	}, producers.Environment{Policy: policy, Tokenizer: tok, Agent: agent, Tools: []producers.Tool{tool}, Reward: exact{}})
	require.NoError(t, err)
	require.Empty(t, policy.lines, "the script was not said to its end")
	return got, policy
}

var wide = schemas.Limits{MaxTokens: 64, MaxTurns: 8}

func TestANotebookWritesCellsAndReadsTheirOutputs(t *testing.T) {
	t.Parallel()
	got, policy := rollout(t, notebook.DefaultConfig(), cells{"a": "b </output> c"}, wide, "<code> a </code>", "<code> g </code>", "<code> submit ( d ) </code>")
	require.Equal(t, "d", got.Answer)
	require.Equal(t, schemas.StopAnswer, got.Stop)
	require.Equal(t, []string{
		"<bos> what is it ?",
		"<bos> what is it ? <code> a </code> <output> b c </output>",
		"<bos> what is it ? <code> a </code> <output> b c </output> <code> g </code> <output> error <unk> no g </output>",
	}, policy.saw)
	require.Len(t, got.Segments, 1)
	require.Len(t, got.Turns, 3)
}

func TestATurnWithoutACellIsToldOfAndThenEndsTheEpisode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line, told string
		want             schemas.StopReason
	}{
		{"no cell", "a b c", "there is no cell in this turn .", schemas.StopFormat},
		{"two cells", "<code> a <code> b </code>", "there is more than one cell in this turn .", schemas.StopFormat},
		{"end before the cell", "</code> <code>", "there is more than one cell in this turn .", schemas.StopFormat},
		{"cut", "<code> a a a a a a a a a a a a a a a a a a a a a a", "the cell was cut .", schemas.StopFormat},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := notebook.DefaultConfig()
			cfg.MaxInvalid, cfg.TurnTokens = 2, 8
			got, policy := rollout(t, cfg, cells{}, wide, c.line, c.line)
			require.Equal(t, c.want, got.Stop)
			require.Empty(t, got.Answer)
			require.True(t, strings.HasSuffix(policy.saw[1], "<output> "+c.told+" </output>"), policy.saw[1])
		})
	}
	got, _ := rollout(t, notebook.DefaultConfig(), cells{}, schemas.Limits{MaxTokens: 10, MaxTurns: 8}, "a a")
	require.Equal(t, schemas.StopTokens, got.Stop)
}

func TestAHardTrimKeepsTheTaskTheNotepadAndTheLastTurn(t *testing.T) {
	t.Parallel()
	cfg := notebook.DefaultConfig()
	cfg.Trim, cfg.TurnTokens = notebook.TrimHard, 8
	got, policy := rollout(t, cfg, cells{"a": "b b b b b b b b", "c": "d d d d d d d d", "notes": "one two"}, schemas.Limits{MaxTokens: 31, MaxTurns: 8},
		"<code> note one </code>", "<code> a </code>", "<code> c </code>", "<code> submit ( d ) </code>")
	require.Equal(t, []string{
		"<bos> what is it ?",
		"<bos> what is it ? <code> note one </code> <output> </output>",
		"<bos> what is it ? <notes> one two </notes> <code> a </code> <output> b b b b b b b b </output>",
		"<bos> what is it ? <notes> one two </notes> <code> c </code> <output> d d d d d d d d </output>",
	}, policy.saw)
	require.Len(t, got.Segments, 3)
	require.Equal(t, "d", got.Answer)
	for _, turn := range got.Turns[2:] {
		segment := got.Segments[turn.Segment]
		for i, acts := range segment.ActionMask {
			require.Equal(t, i >= turn.Start && i < turn.End, acts == 1, "only what was sampled in the segment is trained on")
		}
	}
}

func TestSwappedNotesAreAnotherEpisodes(t *testing.T) {
	t.Parallel()
	cfg := notebook.DefaultConfig()
	cfg.Trim, cfg.TurnTokens, cfg.SwapNotes = notebook.TrimHard, 8, true
	tok := words(t)
	agent, err := notebook.New(cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{cells{}.Spec()}})
	require.NoError(t, err)
	episode := func(note string) string {
		tool := cells{"a": "b b b b b b b b", "notes": note}
		policy := &says{tok: tok, lines: []string{"<code> note " + note + " </code>", "<code> note " + note + " </code>", "<code> a </code>", "<code> submit ( d ) </code>"}}
		_, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: "p", Text: "what is it ?", Answers: []string{"d"}},
			Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 31, MaxTurns: 8},
		}, producers.Environment{Policy: policy, Tokenizer: tok, Agent: agent, Tools: []producers.Tool{tool}, Reward: exact{}})
		require.NoError(t, err)
		return policy.saw[3]
	}
	require.NotContains(t, episode("one"), "<notes>", "nobody has written yet")
	require.Contains(t, episode("two"), "<notes> one </notes>")
	require.Contains(t, episode("one"), "<notes> two </notes>")
}

func TestATrimThatKeepsNoTurnKeepsTheOutputThatWasNotRead(t *testing.T) {
	t.Parallel()
	cfg := notebook.DefaultConfig()
	cfg.Trim, cfg.TurnTokens, cfg.Keep = notebook.TrimHard, 8, 0
	got, policy := rollout(t, cfg, cells{"a": "b b b b b b b b"}, schemas.Limits{MaxTokens: 24, MaxTurns: 8}, "<code> a </code>", "<code> submit ( d ) </code>")
	require.Equal(t, []string{"<bos> what is it ?", "<bos> what is it ? <output> b b b b b b b b </output>"}, policy.saw)
	require.Len(t, got.Segments, 2)
}

func TestASoftTrimTrainsTheSummary(t *testing.T) {
	t.Parallel()
	cfg := notebook.DefaultConfig()
	cfg.Trim, cfg.TurnTokens, cfg.SummaryTokens = notebook.TrimSoft, 8, 4
	got, policy := rollout(t, cfg, cells{"a": "b b b b b b b b"}, schemas.Limits{MaxTokens: 26, MaxTurns: 8},
		"<code> a </code>", "one two </summary>", "<code> submit ( d ) </code>")
	require.Equal(t, []string{
		"<bos> what is it ?",
		"<bos> what is it ? <code> a </code> <summary>",
		"<bos> what is it ? <summary> one two </summary> <code> a </code> <output> b b b b b b b b </output>",
	}, policy.saw)
	require.Len(t, got.Segments, 2)
	require.Equal(t, 3+3, sum(got.Segments[0].ActionMask), "the cell and the summary")

	// A demonstration of a summary is the segment that the episode had, and one that begins with a summary is the next.
	tok := words(t)
	agent, err := notebook.New(cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{{Name: "starlark"}}})
	require.NoError(t, err)
	summing := tasks.Demonstration{Question: "what is it ?", Steps: []tasks.Step{{Arguments: "a"}}, SumUp: "one two"}
	tokens, mask, err := agent.Demonstrate(summing)
	require.NoError(t, err)
	require.Equal(t, []int32(got.Segments[0].Tokens), tokens)
	require.Equal(t, []uint8(got.Segments[0].ActionMask), mask)
	tokens, mask, err = agent.Demonstrate(tasks.Demonstration{
		Question: "what is it ?", Summary: "one two", Before: []tasks.Step{{Arguments: "a", Result: "b b b b b b b b"}}, Answer: "d",
	})
	require.NoError(t, err)
	cut := len(got.Segments[1].Tokens) // by the limit, within the cell
	require.Equal(t, []int32(got.Segments[1].Tokens), tokens[:cut])
	require.Equal(t, []uint8(got.Segments[1].ActionMask), mask[:cut])
	cfg.Trim = notebook.TrimHard
	agent, err = notebook.New(cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{{Name: "starlark"}}})
	require.NoError(t, err)
	_, _, err = agent.Demonstrate(summing)
	require.EqualError(t, err, "a summary, and trim is hard: want soft")
}

func TestDemonstrationsAreWrittenAsEpisodesAre(t *testing.T) {
	t.Parallel()
	tok := words(t)
	cfg := notebook.DefaultConfig()
	cfg.Trim = notebook.TrimHard
	agent, err := notebook.New(cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{{Name: "starlark"}}})
	require.NoError(t, err)
	got, _ := rollout(t, cfg, cells{"a": "b c"}, wide, "<code> a </code>", "<code> submit ( d ) </code>")
	tokens, mask, err := agent.Demonstrate(tasks.Demonstration{Question: "what is it ?", Steps: []tasks.Step{{Arguments: "a", Result: "b c"}}, Answer: "d"})
	require.NoError(t, err)
	require.Equal(t, []int32(got.Segments[0].Tokens), tokens)
	require.Equal(t, []uint8(got.Segments[0].ActionMask), mask)

	tokens, mask, err = agent.Demonstrate(tasks.Demonstration{
		Question: "what is it ?", Notes: "one", Before: []tasks.Step{{Arguments: "a", Result: "b"}}, Steps: []tasks.Step{{Arguments: "c"}},
	})
	require.NoError(t, err)
	require.Equal(t, "<bos> what is it ? <notes> one </notes> <code> a </code> <output> b </output> <code> c </code>", tok.Decode(tokens))
	require.Equal(t, 3, sum(mask))
	_, _, err = agent.Demonstrate(tasks.Demonstration{Question: "what is it ?", Messages: []tasks.Message{{Role: "user", Content: "what is it ?"}}})
	require.ErrorContains(t, err, "messages: the agent reads the question alone")
	_, _, err = agent.Demonstrate(tasks.Demonstration{Question: "what is it ?", Steps: []tasks.Step{{Tool: "search", Arguments: "a"}}})
	require.ErrorContains(t, err, `"search"`)
}

func sum(mask []uint8) (n int) {
	for _, m := range mask {
		n += int(m)
	}
	return n
}

func TestAnAgentThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	tok := words(t)
	_, err := notebook.New(notebook.DefaultConfig(), agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{{Name: "search"}}})
	require.ErrorContains(t, err, `"starlark" is none of its task's: they are search`)
	plain, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>"}, Words: []string{"a"}, Unknown: "<unk>"})
	require.NoError(t, err)
	_, err = notebook.New(notebook.DefaultConfig(), agents.Opening{Tokenizer: plain, Tools: []producers.ToolSpec{{Name: "starlark"}}})
	require.ErrorContains(t, err, `no token "<code>"`)
	cfg := notebook.Config{Tool: "", Notation: "x", Trim: "some", TurnTokens: -1, Keep: -1}
	for _, key := range []string{"tool", "notation", "trim", "keep", "turn_tokens", "summary_tokens", "max_invalid"} {
		require.ErrorContains(t, cfg.Validate(), key)
	}
}
