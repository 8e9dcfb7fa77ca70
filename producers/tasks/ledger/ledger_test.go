package ledger

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools/starlark"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func open(t *testing.T) *tasks.Setup {
	t.Helper()
	return openWith(t, DefaultConfig())
}

func openWith(t *testing.T, cfg Config) *tasks.Setup {
	t.Helper()
	s, err := Type().Open(t.Context(), tasks.Opening{Name: Name, Config: &cfg, Seed: 1, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

// worker is the agent of the preset.
func worker(t *testing.T, s *tasks.Setup) *notebook.Agent {
	t.Helper()
	cfg := notebook.DefaultConfig()
	cfg.Trim, cfg.Keep, cfg.TurnTokens = notebook.TrimHard, 0, 26
	a, err := notebook.New(cfg, agents.Opening{Tokenizer: s.Tokenizer, Tools: []producers.ToolSpec{{Name: starlark.Name}}})
	require.NoError(t, err)
	return a
}

// scripted writes the turns of an episode, cells and summaries, and keeps the contexts that it was asked in.
type scripted struct {
	tok   tasks.Tokenizer
	texts []string
	mu    sync.Mutex
	saw   [][]int32
}

func (p *scripted) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := p.tok.Encode(p.texts[len(p.saw)])
	p.saw = append(p.saw, slices.Clone(r.Tokens))
	return &generate.Result{Tokens: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), Stop: schemas.GenerateStopToken}, nil
}

type matches struct{}

func (matches) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	if t.Answer == ticket.Prompt.Answers[0] {
		return producers.Score{Total: 1}, nil
	}
	return producers.Score{}, nil
}

// What a demonstration of a summary shows is what an episode shows that trims softly: its contexts, cell by cell and summary by summary.
func TestDemonstratedSummariesAreThoseOfEpisodes(t *testing.T) {
	t.Parallel()
	s, cfg := open(t), DefaultConfig()
	cfg.Demo.Note, cfg.Demo.SumUp = 0, 0.5
	set := notebook.DefaultConfig()
	set.Trim, set.Keep, set.TurnTokens, set.SummaryTokens = notebook.TrimSoft, 0, 26, 4
	agent, err := notebook.New(set, agents.Opening{Tokenizer: s.Tokenizer, Tools: []producers.ToolSpec{{Name: starlark.Name}}})
	require.NoError(t, err)
	tool, err := starlark.New(starlark.DefaultConfig(), s.Worlds)
	require.NoError(t, err)
	all := shuffledColours(cfg.Seed)
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(6, i))
		b := drawBook(rng, all, all, highest, []int{2, 4, 9}[i%3])
		policy := &scripted{tok: s.Tokenizer}
		var shown []string
		for _, m := range cfg.Demo.scriptEpisode(rng, b, all) {
			tokens, mask, err := agent.Demonstrate(m.newDemonstration())
			require.NoError(t, err)
			policy.texts = append(policy.texts, "<code> "+m.cell+" </code>")
			shown = append(shown, s.Tokenizer.Decode(tokens[:slices.Index(mask, 1)]))
			if m.sumUp != "" {
				policy.texts = append(policy.texts, m.sumUp+" </summary>")
				shown = append(shown, s.Tokenizer.Decode(tokens[:len(tokens)-2]))
			}
		}
		trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			Run: "r", ID: "g0-a0-" + strconv.Itoa(int(i)), Group: "g0-a0", GroupSize: 1, Prompt: b.newPrompt("p"),
			Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 70, MaxTurns: 30},
		}, producers.Environment{Policy: policy, Tokenizer: s.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: matches{}})
		require.NoError(t, err)
		require.Equal(t, schemas.StopAnswer, trajectory.Stop)
		var saw []string
		for _, ids := range policy.saw {
			saw = append(saw, s.Tokenizer.Decode(ids))
		}
		require.Equal(t, shown, saw)
	}
}

// Invariant: what a demonstration shows is what an episode of the agent's shows: its context, cell by cell, and the outputs that the interpreter gives.
func TestInvariantDemonstrationsAreEpisodes(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"cells": false, "single calls": true} {
		t.Run(name, func(t *testing.T) { requireDemonstrationsAreEpisodes(t, plain) })
	}
}

// requireDemonstrationsAreEpisodes plays scripted episodes, and holds their contexts against the demonstrations of their cells.
func requireDemonstrationsAreEpisodes(t *testing.T, plain bool) {
	t.Helper()
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Plain = plain
	s := openWith(t, cfg)
	agent := worker(t, s)
	set := starlark.DefaultConfig()
	set.SingleCalls = plain
	tool, err := starlark.New(set, s.Worlds)
	require.NoError(t, err)
	all := shuffledColours(cfg.Seed)
	solved, byPages := map[int]int{}, map[int]int{}
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(5, i))
		b := drawBook(rng, all, all, highest, cfg.Pages[i%3])
		moments := cfg.Demo.scriptMoments(rng, b, all, plain)
		policy := &scripted{tok: s.Tokenizer}
		for _, m := range moments {
			policy.texts = append(policy.texts, "<code> "+m.cell+" </code>")
		}
		trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			Run: "r", ID: "g0-a0-" + strconv.Itoa(int(i)), Group: "g0-a0", GroupSize: 1, Prompt: b.newPrompt("p"),
			Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 64, MaxTurns: 20},
		}, producers.Environment{Policy: policy, Tokenizer: s.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: matches{}})
		require.NoError(t, err)
		require.Equal(t, schemas.StopAnswer, trajectory.Stop)
		require.Len(t, policy.saw, len(moments))
		for k, m := range moments {
			tokens, mask, err := agent.Demonstrate(m.newDemonstration())
			require.NoError(t, err)
			from := slices.Index(mask, 1)
			require.Equal(t, s.Tokenizer.Decode(policy.saw[k]), s.Tokenizer.Decode(tokens[:from]), "cell %d, %s", k+1, m.cell)
		}
		byPages[len(b.Pages)]++
		if trajectory.Reward == 1 {
			solved[len(b.Pages)]++
		}
	}
	require.Positive(t, solved[2], "the demonstrator solves some")
	require.Less(t, solved[6], byPages[6])
}

func TestThePolicyCanWriteEveryWordAndNoResult(t *testing.T) {
	t.Parallel()
	s := open(t)
	written, err := s.Demonstrations.(tasks.Rewritable).Rewrite(worker(t, s))
	require.NoError(t, err)
	unknown, ok := s.Tokenizer.ID(tasks.TokenUnknown)
	require.True(t, ok)
	for i := range uint64(3000) {
		tokens, mask := written.Demonstration(i)
		require.NotEmpty(t, tokens)
		require.NotContains(t, tokens, unknown, s.Tokenizer.Decode(tokens))
		require.LessOrEqual(t, len(tokens), 64)
		require.Contains(t, mask, uint8(1))
	}
	small := 0
	for _, q := range s.Data.Questions[tasks.Test] {
		if n, err := strconv.Atoi(q.Answers[0]); err == nil && n < 100 {
			small++
		}
	}
	require.Less(t, small, 3, "an answer that is a word could be guessed")
}

func TestRulesOfASplitAreItsOwn(t *testing.T) {
	t.Parallel()
	s := open(t)
	by := map[string]tasks.Split{}
	for _, split := range tasks.Splits() {
		for _, q := range s.Data.Questions[split] {
			_, rest, _ := strings.Cut(string(q.World), `"rule":"`)
			rule, _, _ := strings.Cut(rest, `"`)
			before, seen := by[rule]
			require.True(t, !seen || before == split, "%s is a rule of %s and of %s", rule, before, split)
			by[rule] = split
		}
	}
	require.Len(t, by, colourCount)
	require.Equal(t, s.Data.Questions, open(t).Data.Questions)
	all := shuffledColours(1)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), colourCount)
}

func TestABookIsSaidOnce(t *testing.T) {
	t.Parallel()
	b := drawBook(rand.New(rand.NewPCG(1, 1)), []string{"red"}, []string{"blue", "green", "pink", "gold"}, 9, 1)
	e := &episode{book: b}
	said := func(name string, args ...any) string {
		out, err := e.Call(t.Context(), name, args)
		if err != nil {
			return err.Error()
		}
		return string(out.(tasks.Printed))
	}
	require.Equal(t, "count red .", said("rule"))
	require.Equal(t, "the rule was said .", said("rule"))
	require.True(t, strings.HasPrefix(said("turn"), "page : "))
	require.Equal(t, "no more pages .", said("turn"))
	worth, err := e.Call(t.Context(), "row", []any{"red"})
	require.NoError(t, err)
	require.Equal(t, int64(b.ruleSum()), worth)
	require.Equal(t, "no such colour", said("row", "tan"))
	require.Equal(t, "no page is open", func() string {
		_, err := (&episode{book: b}).Call(t.Context(), "row", []any{"red"})
		return err.Error()
	}())
	require.Equal(t, "takes no arguments", said("turn", 1))
	_, err = e.Call(t.Context(), "count", []any{"tan"})
	require.EqualError(t, err, "no such colour")
	for _, want := range []int{b.ruleSum(), 2 * b.ruleSum()} { // a row counts as often as it is counted
		sum, err := e.Call(t.Context(), "count", []any{"red"})
		require.NoError(t, err)
		require.EqualValues(t, want, sum)
	}
	require.NotContains(t, e.Names(), "count")
	require.Contains(t, (&episode{plain: true}).Names(), "count")
	summed := DefaultConfig()
	summed.Plain, summed.Demo.SumUp = true, 0.5
	require.ErrorContains(t, summed.Validate(), "demo.sum_up")
	require.Error(t, Config{Pages: []int{0, 21}, Ledgers: 0, HeldOut: 0, Demo: DemoConfig{Note: 2}}.Validate())
}
