package selfplay

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/selfplay"
	reward "github.com/weir-rl/weir/producers/rewards/selfplay"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func newTask(tb testing.TB, cfg Config) *Task {
	tb.Helper()
	task, err := New(cfg, tasks.Opening{})
	require.NoError(tb, err)
	return task
}

func unknown(task *Task) int32 { return task.Tokenizer.(*tokenizer.Tokenizer).Unknown() }

// chains are those of the training prompts, in their order.
func chains(t *testing.T, task *Task) []chain {
	t.Helper()
	plain, err := countries.New(DefaultConfig().countriesConfig(countries.DefaultDemoConfig()), tasks.Opening{})
	require.NoError(t, err)
	found := map[string]string{}
	for _, p := range task.Passages {
		found[spaceTokens(p.Title)] = spaceTokens(p.Text)
	}
	var out []chain
	left := 0
	for _, q := range plain.Questions[tasks.Train] {
		c, ok := followChain(q.Text, func(title string) string { return found[title] })
		require.True(t, ok, q.Text)
		require.True(t, selfplay.Right(c.answer, q.Answers...), q.Text)
		require.Equal(t, spaceTokens(q.Text), c.questionFrom(0, c.field))
		if !c.isAskable() {
			left++
			continue
		}
		out = append(out, c)
	}
	require.Less(t, left, 20)
	return out
}

// Each document has a question for each of its links whose answer is the one to be asked for, and neither the answers nor the documents
// name what is held out.
func TestEveryDocumentCanBeAskedAbout(t *testing.T) {
	t.Parallel()
	task := newTask(t, DefaultConfig())
	train, all := task.Questions[tasks.Train], chains(t, task)
	require.Len(t, train, len(all), "no other question is lost")
	held := map[string]bool{}
	for _, split := range []tasks.Split{tasks.Validation, tasks.Test} {
		for _, q := range task.Questions[split] {
			require.Empty(t, q.Meta)
			held[spaceTokens(q.ID[strings.LastIndex(q.ID, "/")+1:])] = true
		}
	}
	for i, c := range all {
		p := train[i]
		require.Equal(t, c.joinDocuments(), p.Meta[selfplay.MetaDocument])
		require.Equal(t, c.proposerPrompt(), p.Text)
		require.NotContains(t, task.Tokenizer.Encode(p.Text), unknown(task), p.Text)
		require.NotEmpty(t, About(p.Source))
		require.NotContains(t, c.documents, p.Meta[selfplay.MetaNoise])
		require.NotEmpty(t, p.Meta[selfplay.MetaNoise])
		for _, title := range c.titles {
			require.False(t, held[title], "%s is held out", title)
		}
		for from := range c.titles {
			again, ok := followChain(c.questionFrom(from, c.field), func(title string) string { return c.documents[slices.Index(c.titles, title)] })
			require.True(t, ok)
			require.Equal(t, c.answer, again.answer)
			require.Equal(t, c.documents[from:], again.documents)
		}
	}
	require.Empty(t, About("game-7"))
}

// Each part is demonstrated as its context begins in a game; a verifier is always right, a proposer as often as configured.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Demo.Solver.OneHopFirst = 0
	task := newTask(t, cfg)
	agent, err := selfplay.New(selfplay.DefaultConfig(), task.Tokenizer)
	require.NoError(t, err)
	const n = 4000
	asked, valid, nearest := 0, 0, 0
	for i := range uint64(n) {
		tokens, mask := task.Demonstration(i)
		again, _ := task.Demonstration(i)
		require.Equal(t, tokens, again)
		require.Len(t, mask, len(tokens))
		require.NotContains(t, tokens, unknown(task))
		require.LessOrEqual(t, len(tokens), 128)
		acts := slices.Index(mask, 1)
		require.Positive(t, acts)
		if i%parts >= partSolver {
			continue
		}
		require.NotContains(t, mask[acts:], uint8(0))
		c, said := task.chainAt(i), task.Tokenizer.Decode(tokens[acts:])
		if i%parts == partVerifier {
			require.Equal(t, c.answer+" </answer>", said)
			require.True(t, strings.HasPrefix(task.Tokenizer.Decode(tokens), "<bos> "+c.joinDocuments()+" "))
			continue
		}
		require.Equal(t, agent.Opening(schemas.Prompt{Text: c.proposerPrompt()}), tokens[:acts])
		asked++
		question := strings.TrimSuffix(strings.TrimPrefix(said, "<answer> "), " </answer>")
		got, ok := followChain(question, func(title string) string { return c.documents[slices.Index(c.titles, title)] })
		require.True(t, ok, question)
		if got.answer == c.answer {
			valid++
		}
		if len(got.titles) == 1 {
			nearest++
		}
	}
	require.InDelta(t, 0.8, float64(valid)/float64(asked), 0.05)
	require.Greater(t, nearest, asked/2)
	require.Less(t, nearest, asked*9/10)
}

// actor plays every part without fault: it asks the farthest question and follows each question through what it finds. solves says
// which solvers do; the others answer at once.
type actor struct {
	task   *Task
	solves func(context string) bool
}

func (a actor) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	g := &generate.Result{Tokens: a.task.Tokenizer.Encode(a.say(r)), Stop: schemas.GenerateStopToken}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

func (a actor) say(r *schemas.GenerateRequest) string {
	text := strings.TrimPrefix(a.task.Tokenizer.Decode(r.Tokens), "<bos> ")
	find := func(documents string) func(title string) string {
		return func(title string) string {
			for document := range strings.SplitSeq(documents, " . ") {
				if strings.HasPrefix(document, title+" has ") || strings.HasPrefix(document, title+" is a region of ") {
					return document
				}
			}
			return ""
		}
	}
	if documents, answer, ok := strings.Cut(text, " ask for "); ok {
		for _, field := range countries.Fields() {
			titles := strings.Split(documents, " . ")
			for i := range titles {
				titles[i], _, _ = strings.Cut(strings.Replace(titles[i], " is a region of ", " has ", 1), " has ")
			}
			c := chain{titles: titles, region: strings.Contains(documents, " is a region of ")}
			for from := range titles {
				got, ok := followChain(c.questionFrom(from, field), find(documents))
				if gold := strings.TrimSuffix(answer, " ."); ok && got.answer == gold && !selfplay.GivesAway(c.questionFrom(from, field), gold) {
					return "<answer> " + c.questionFrom(from, field) + " </answer>"
				}
			}
		}
		return "<answer> what is the capital ? </answer>"
	}
	if documents, ok := strings.CutSuffix(text, " <answer>"); ok {
		at := strings.LastIndex(documents, "what is the ")
		got, _ := followChain(documents[at:], find(documents[:at]))
		return got.answer + " </answer>"
	}
	question, rest, _ := strings.Cut(text, " ?")
	if !a.solves(r.Context) {
		return "<answer> the region </answer>"
	}
	rest = strings.ReplaceAll(rest, "<info> ", " . ")
	rest = strings.ReplaceAll(rest, " </info>", " . ")
	got, ok := followChain(question, find(rest))
	if ok {
		return "<answer> " + got.answer + " </answer>"
	}
	// What is not found yet is the last title that was asked of.
	next := ""
	_, _ = followChain(question, func(title string) string {
		if document := find(rest)(title); document != "" {
			return document
		}
		next = title
		return ""
	})
	return "<search> " + next + " </search>"
}

// Games over the documents can be played to their end within the limits of the preset, and pay what the rule says.
func TestGamesOverTheDocuments(t *testing.T) {
	t.Parallel()
	task := newTask(t, DefaultConfig())
	agent, err := selfplay.New(selfplay.DefaultConfig(), task.Tokenizer)
	require.NoError(t, err)
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), task.Passages)
	require.NoError(t, err)
	worth, err := reward.New(reward.DefaultConfig())
	require.NoError(t, err)
	env := producers.Environment{
		Policy:    actor{task, func(context string) bool { return context != "3" && context != "5" }},
		Tokenizer: task.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: worth,
	}
	train := task.Questions[tasks.Train]
	for i := 0; i < len(train); i += 7 {
		trajectory, transcript, err := producers.Rollout(t.Context(), &schemas.Ticket{
			ID: "t", Prompt: train[i], Limits: schemas.Limits{MaxTurns: 12, MaxTokens: 128}, GroupSize: 1,
		}, env)
		require.NoError(t, err)
		require.Equal(t, map[string]float64{
			"proposer": 0.5, "verifier": 0, "solver-1": 1, "solver-2": 0, "solver-3": 1, "solver-4": 0,
		}, trajectory.AgentRewards, "%s", transcript)
	}
	for _, q := range task.Sample(tasks.Test, 40, 1) {
		trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{ID: "t", Prompt: q, Limits: schemas.Limits{MaxTurns: 12, MaxTokens: 128}, GroupSize: 1},
			producers.Environment{Policy: actor{task, func(string) bool { return true }}, Tokenizer: task.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: worth})
		require.NoError(t, err)
		require.InDelta(t, 1, trajectory.Reward, 0, q.Text)
	}
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.TestCountries, cfg.Demo.Nearest, cfg.Demo.Careless, cfg.Demo.Solver.StopEarly = 500, 2, -1, 3
	err := cfg.Validate()
	for _, want := range []string{"test_countries", "demo.nearest: 2", "demo.careless: -1", "demo.solver.stop_early: 3"} {
		require.ErrorContains(t, err, want)
	}
}
