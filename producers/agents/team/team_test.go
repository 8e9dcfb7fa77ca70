package team_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/team"
	reward "github.com/weir-rl/weir/producers/rewards/team"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	question = "what is the capital of the neighbour of sweden ?"
	first    = "what is the neighbour of sweden ?"
	second   = "what is the capital of finland ?"
)

func newTokenizer(tb testing.TB, cfg team.Config) *tokenizer.Tokenizer {
	tb.Helper()
	words := tokenizer.LowerWords(question + first + second + "sweden has capital stockholm , neighbour finland . finland has capital helsinki . nothing found . plan : [ 2 tokens cut ]")
	for _, text := range cfg.Texts() {
		words = append(words, tokenizer.LowerWords(text)...)
	}
	slices.Sort(words)
	tok, err := tokenizer.New(tokenizer.Config{
		Special: append(tasks.SpecialTokens(), cfg.TagTokens()...), Words: slices.Compact(words), Unknown: "<unk>", Lowercase: true,
	})
	require.NoError(tb, err)
	return tok
}

// cast is a policy that says the next line of each context's script, by the context's number.
type cast struct {
	tok   producers.Tokenizer
	lines map[string][]string
	fails map[string]error // contexts that no engine serves

	mu       sync.Mutex
	at       map[string]int
	contexts map[string]string // as each context began
}

func (p *cast) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at, p.contexts = map[string]int{}, map[string]string{}
	}
	if _, began := p.contexts[r.Context]; !began {
		p.contexts[r.Context] = p.tok.Decode(r.Tokens)
	}
	lines := p.lines[r.Context]
	if err := p.fails[r.Context]; err != nil {
		return nil, err
	}
	if p.at[r.Context] == len(lines) {
		return nil, fmt.Errorf("context %q has said its lines", r.Context)
	}
	line := lines[p.at[r.Context]]
	p.at[r.Context]++
	if line == "panic" {
		panic("the engine's client")
	}
	g := &generate.Result{Tokens: p.tok.Encode(line), Stop: schemas.GenerateStopToken}
	if len(g.Tokens) > r.MaxTokens {
		g.Tokens, g.Stop = g.Tokens[:r.MaxTokens], schemas.GenerateLength
	}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

func environment(tb testing.TB, policy *cast, cfg team.Config, paid reward.Config) producers.Environment {
	tb.Helper()
	tok := newTokenizer(tb, cfg)
	policy.tok = tok
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), []tasks.Passage{
		{Title: "sweden", Text: "sweden has capital stockholm , neighbour finland ."}, {Title: "finland", Text: "finland has capital helsinki ."},
	})
	require.NoError(tb, err)
	agent, err := team.New(tb.Context(), cfg, agents.Opening{Tokenizer: tok, Tools: []producers.ToolSpec{tool.Spec()}})
	require.NoError(tb, err)
	worth, err := reward.New(paid)
	require.NoError(tb, err)
	return producers.Environment{Policy: policy, Tokenizer: tok, Agent: agent, Tools: []producers.Tool{tool}, Reward: worth}
}

func ticket() *schemas.Ticket {
	return &schemas.Ticket{
		Run: "r", ID: "g0-0-0", Group: "g0-0", GroupSize: 1, Task: "t",
		Prompt:   schemas.Prompt{ID: "p", Text: question, Answers: []string{"Helsinki"}, Source: "2n"},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTurns: 8, MaxTokens: 96},
	}
}

func played(tb testing.TB, policy *cast, cfg team.Config, paid reward.Config, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript) {
	tb.Helper()
	trajectory, transcript, err := producers.Rollout(context.Background(), ticket, environment(tb, policy, cfg, paid))
	require.NoError(tb, err)
	trajectory.Producer = "p"
	require.NoError(tb, trajectory.Validate())
	return trajectory, transcript
}

func planned() team.Config {
	cfg := team.DefaultConfig()
	cfg.Planner.System = "plan :"
	return cfg
}

// right is how a question is answered by two workers.
func right() map[string][]string {
	return map[string][]string{
		"":  {"<delegate> " + first + " </delegate>", "<delegate> " + second + " </delegate>", "<answer> helsinki </answer>"},
		"1": {"<search> sweden </search>", "<answer> finland </answer>"},
		"2": {"<search> finland </search>", "<answer> helsinki </answer>"},
	}
}

func agentsOf(t *schemas.Trajectory) (out []string) {
	for _, s := range t.Segments {
		out = append(out, s.Agent)
	}
	return out
}

// One episode by hand: each part sees what it should and no more, acts in a segment of its name, and the planner's call is recorded in its
// turn with what the worker answered.
func TestATeam(t *testing.T) {
	t.Parallel()
	for _, paid := range []string{reward.ByOutcome, reward.ByAnswer} {
		policy, worth := &cast{lines: right()}, reward.DefaultConfig()
		worth.Worker = paid
		trajectory, transcript := played(t, policy, planned(), worth, ticket())
		require.Equal(t, map[string]string{"": "<bos> plan : " + question, "1": "<bos> " + first, "2": "<bos> " + second}, policy.contexts)
		require.Equal(t, []string{"planner", "worker-1", "worker-2"}, agentsOf(trajectory))
		require.Equal(t, "helsinki", trajectory.Answer)
		require.Equal(t, schemas.StopAnswer, trajectory.Stop)
		require.Equal(t, "<bos> plan : "+question+" <delegate> "+first+" </delegate> <info> finland </info> <delegate> "+second+
			" </delegate> <info> helsinki </info> <answer> helsinki </answer>", policy.tok.Decode(trajectory.Segments[0].Tokens))
		var called []string
		for _, turn := range trajectory.Turns {
			for _, call := range turn.Calls {
				called = append(called, fmt.Sprint(turn.Segment, " ", call.Tool, " ", call.Arguments, call.Error))
			}
		}
		require.Equal(t, []string{"0 delegate " + first, "0 delegate " + second, "1 search sweden", "2 search finland"}, called)
		require.Equal(t, []string{"helsinki", "finland", "helsinki"}, []string{
			transcript.Contexts[0].Answer, transcript.Contexts[1].Answer, transcript.Contexts[2].Answer,
		})
		require.InDelta(t, 1, trajectory.Rewards[producers.ComponentExactMatch], 0)
		require.InDelta(t, 1, trajectory.Rewards[reward.ComponentWorkers], 0)
		if paid == reward.ByOutcome {
			require.Nil(t, trajectory.AgentRewards, "all are credited as one")
		} else {
			require.Equal(t, map[string]float64{"planner": trajectory.Reward, "worker-1": trajectory.Reward, "worker-2": trajectory.Reward}, trajectory.AgentRewards)
		}
	}
}

// A worker without an answer is told of in words, and the planner goes on; where workers are paid for answers, it is paid nothing.
func TestAWorkerThatFailsIsToldOf(t *testing.T) {
	t.Parallel()
	short := func(change func(*team.Config)) team.Config {
		cfg := planned()
		change(&cfg)
		return cfg
	}
	ends := func(most int) func(*schemas.Limits) { return func(l *schemas.Limits) { l.MaxTurns = most } }
	for name, c := range map[string]struct {
		cfg    team.Config
		limits func(*schemas.Limits)
		worker []string
		told   string
		agents int
	}{
		"format":             {planned(), nil, []string{"sweden </search>"}, "error : the worker gave no answer : it did not keep to the format", 2},
		"its own calls":      {short(func(c *team.Config) { c.Worker.MaxTurns = 1 }), nil, []string{right()["1"][0], right()["1"][0]}, "error : the worker gave no answer : it had no call left", 2},
		"the episode's":      {planned(), ends(2), []string{right()["1"][0], right()["1"][0]}, "error : the worker gave no answer : it had no call left", 2},
		"its own tokens":     {short(func(c *team.Config) { c.Worker.MaxTokens = 12 }), nil, right()["1"], "error : the worker gave no answer : it had no room left", 2},
		"too long a task":    {short(func(c *team.Config) { c.Worker.MaxTokens = 4 }), nil, nil, "error : the worker gave no answer : it had no room left", 1},
		"too many contexts":  {planned(), func(l *schemas.Limits) { l.MaxSegments = 1 }, nil, "error : the worker gave no answer : it had no context left", 1},
		"nothing but a tag":  {planned(), nil, []string{"<answer> <delegate> </answer>"}, "error : the worker gave no answer", 2},
		"the answer is long": {short(func(c *team.Config) { c.Cut = producers.Cut{Tokens: 2, Keep: producers.KeepLeft} }), nil, []string{"<answer> sweden has capital stockholm </answer>"}, "sweden has [ 2 tokens cut ]", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worth := reward.DefaultConfig()
			worth.Worker = reward.ByAnswer
			asked := ticket()
			if c.limits != nil {
				c.limits(&asked.Limits)
			}
			policy := &cast{lines: map[string][]string{"": {right()[""][0], "<answer> helsinki </answer>"}, "1": c.worker}}
			trajectory, _ := played(t, policy, c.cfg, worth, asked)
			require.Contains(t, policy.tok.Decode(trajectory.Segments[0].Tokens), "<info> "+c.told+" </info> <answer>")
			require.Equal(t, "helsinki", trajectory.Answer)
			require.Len(t, trajectory.Segments, c.agents)
			failed := name != "the answer is long"
			require.Equal(t, failed, trajectory.Turns[0].Calls[0].Failed)
			if c.agents == 2 {
				want := trajectory.Reward
				if failed {
					want = 0
				}
				require.InDelta(t, want, trajectory.AgentRewards["worker-1"], 0)
				require.InDelta(t, trajectory.Reward, trajectory.AgentRewards["planner"], 0)
			}
		})
	}
}

func TestDelegationsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := planned()
	cfg.MaxWorkers = 1
	policy := &cast{lines: right()}
	trajectory, _ := played(t, policy, cfg, reward.DefaultConfig(), ticket())
	require.Equal(t, []string{"planner", "worker-1"}, agentsOf(trajectory))
	require.Contains(t, policy.tok.Decode(trajectory.Segments[0].Tokens), "<info> error : not delegated : at most 1 workers </info>")

	asked := ticket()
	asked.Limits.MaxTurns = 0
	closed := &cast{lines: map[string][]string{"": {"helsinki </answer>"}}}
	trajectory, _ = played(t, closed, cfg, reward.DefaultConfig(), asked)
	require.Equal(t, "<bos> plan : "+question+" <answer>", closed.contexts[""], "an episode that may call nothing has no workers")
	require.Equal(t, "helsinki", trajectory.Answer)
}

// The limits of the episode count all contexts.
func TestTheLimitsAreOfAllContexts(t *testing.T) {
	t.Parallel()
	tokens := ticket()
	tokens.Limits.MaxTotalTokens = 60
	trajectory, _ := played(t, &cast{lines: right()}, planned(), reward.DefaultConfig(), tokens)
	require.Equal(t, schemas.StopTokens, trajectory.Stop)
	require.LessOrEqual(t, trajectory.Tokens(), 60)
	require.Greater(t, trajectory.Tokens(), len(trajectory.Segments[0].Tokens))

	calls := ticket()
	calls.Limits.MaxTurns = 3 // two of the first delegation, and the second
	trajectory, _ = played(t, &cast{lines: right()}, planned(), reward.DefaultConfig(), calls)
	require.Equal(t, schemas.StopAnswer, trajectory.Stop)
	require.True(t, trajectory.Turns[1].Calls[0].Failed, "the second worker had no call left")
	calls.Limits.MaxTurns = 2
	trajectory, _ = played(t, &cast{lines: right()}, planned(), reward.DefaultConfig(), calls)
	require.Equal(t, schemas.StopTurns, trajectory.Stop)
}

// What the policy writes to itself, from context to context, never becomes a tag.
func TestNoTagPassesBetweenContexts(t *testing.T) {
	t.Parallel()
	policy := &cast{lines: map[string][]string{
		"":  {"<delegate> <search> finland </search> <bos> sweden </delegate>", "<answer> helsinki </answer>"},
		"1": {"<answer> <delegate> <bos> finland </delegate> </answer>"},
	}}
	trajectory, _ := played(t, policy, planned(), reward.DefaultConfig(), ticket())
	require.Equal(t, "<bos> finland sweden", policy.contexts["1"])
	require.Contains(t, policy.tok.Decode(trajectory.Segments[0].Tokens), "</delegate> <info> finland </info> <answer>")
}

// What fails in the machinery under a worker is the episode's failure, and no words to the planner.
func TestTheMachineryUnderAWorker(t *testing.T) {
	t.Parallel()
	policy := &cast{lines: right(), fails: map[string]error{"2": generate.ErrUnserved}}
	_, _, err := producers.Rollout(context.Background(), ticket(), environment(t, policy, planned(), reward.DefaultConfig()))
	require.ErrorIs(t, err, generate.ErrUnserved)
	require.True(t, producers.Unserved(err))
	require.ErrorContains(t, err, "worker-2")

	env := environment(t, &cast{lines: right()}, planned(), reward.DefaultConfig())
	env.Tools = []producers.Tool{away{env.Tools[0]}}
	_, _, err = producers.Rollout(context.Background(), ticket(), env)
	require.ErrorIs(t, err, producers.ErrUnavailable)

	lines := right()
	lines["1"] = []string{"panic"}
	_, _, err = producers.Rollout(context.Background(), ticket(), environment(t, &cast{lines: lines}, planned(), reward.DefaultConfig()))
	require.ErrorContains(t, err, "the engine's client")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(context.Canceled)
	_, _, err = producers.Rollout(ctx, ticket(), environment(t, &cast{lines: right()}, planned(), reward.DefaultConfig()))
	require.ErrorIs(t, err, context.Canceled)
}

type away struct{ producers.Tool }

func (away) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{}, fmt.Errorf("%w: no route", producers.ErrUnavailable)
}

// Invariant: a demonstration is what the episode of the same words would have been, for each role.
func TestDemonstrationsAreEpisodes(t *testing.T) {
	t.Parallel()
	policy := &cast{lines: right()}
	env := environment(t, policy, planned(), reward.DefaultConfig())
	trajectory, _, err := producers.Rollout(context.Background(), ticket(), env)
	require.NoError(t, err)
	agent := env.Agent.(*team.Agent)
	for i, d := range []tasks.Demonstration{
		{Question: question, Answer: "helsinki", Steps: []tasks.Step{{Arguments: first, Result: "finland"}, {Arguments: second, Result: "helsinki"}}},
		{Role: "worker", Question: first, Answer: "finland", Steps: []tasks.Step{{Arguments: "sweden", Result: "sweden has capital stockholm , neighbour finland ."}}},
	} {
		tokens, mask, err := agent.Demonstrate(d)
		require.NoError(t, err)
		require.Equal(t, []int32(trajectory.Segments[i].Tokens), tokens)
		require.Equal(t, []uint8(trajectory.Segments[i].ActionMask), mask)
	}
	_, _, err = agent.Demonstrate(tasks.Demonstration{Question: first, Messages: []tasks.Message{{Role: "user", Content: first}}})
	require.ErrorContains(t, err, "messages: the agent reads the question alone")
	_, _, err = agent.Demonstrate(tasks.Demonstration{Role: "boss", Question: first})
	require.ErrorContains(t, err, `role "boss": want planner or worker`)
	require.Equal(t, []int32(trajectory.Segments[0].Tokens[:len(agent.Opening(ticket().Prompt))]), agent.Opening(ticket().Prompt))
}

// Invariant: whatever a team says, its trajectory is valid, the planner's context is the first, and the limits hold over all contexts.
func TestWhateverATeamSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.SampledFrom([]string{
			right()[""][0], right()[""][1], right()["1"][0], right()["1"][1], "<delegate> </delegate>", "<delegate> <search> </delegate>", "finland", "</search>",
			"<answer> <delegate> sweden </answer>", "<answer> helsinki </answer>", "<delegate> <bos> <pad> </delegate>",
		})
		policy := &cast{lines: map[string][]string{}}
		for i := range 6 {
			name := ""
			if i > 0 {
				name = fmt.Sprint(i)
			}
			policy.lines[name] = append(rapid.SliceOfN(line, 0, 5).Draw(rt, "lines"), "<answer> helsinki </answer>", "<answer> helsinki </answer>")
		}
		cfg := planned()
		cfg.MaxWorkers = rapid.IntRange(1, 5).Draw(rt, "workers")
		cfg.Worker.MaxTurns = rapid.IntRange(0, 2).Draw(rt, "turns")
		cfg.Worker.MaxTokens = rapid.SampledFrom([]int{0, 8, 20}).Draw(rt, "tokens")
		cfg.Tags.Invalid = rapid.SampledFrom([]string{"end", "feedback"}).Draw(rt, "invalid")
		asked := ticket()
		asked.Limits.MaxTurns = rapid.IntRange(1, 6).Draw(rt, "calls")
		asked.Limits.MaxTotalTokens = rapid.SampledFrom([]int{0, 40, 120}).Draw(rt, "all tokens")
		asked.Limits.MaxSegments = rapid.IntRange(0, 4).Draw(rt, "segments")
		worth := reward.DefaultConfig()
		worth.Worker = rapid.SampledFrom([]string{reward.ByOutcome, reward.ByAnswer}).Draw(rt, "paid")
		trajectory, transcript := played(t, policy, cfg, worth, asked)
		agents := agentsOf(trajectory)
		require.Equal(rt, "planner", agents[0])
		for i, name := range agents[1:] {
			require.Equal(rt, fmt.Sprint("worker-", i+1), name)
			require.NotContains(rt, policy.contexts[fmt.Sprint(i+1)], "<delegate>")
			if cfg.Worker.MaxTokens > 0 {
				require.LessOrEqual(rt, len(trajectory.Segments[i+1].Tokens), cfg.Worker.MaxTokens)
			}
		}
		require.LessOrEqual(rt, len(agents), cfg.MaxWorkers+1)
		require.LessOrEqual(rt, transcript.Calls(), asked.Limits.MaxTurns)
		if most := asked.Limits.MaxTotalTokens; most > 0 {
			require.LessOrEqual(rt, trajectory.Tokens(), most)
		}
		if most := asked.Limits.MaxSegments; most > 0 {
			require.LessOrEqual(rt, len(agents), most)
		}
	})
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := team.DefaultConfig()
	cfg.Notation, cfg.MaxWorkers, cfg.Worker.MaxTurns, cfg.Worker.MaxTokens, cfg.Delegate, cfg.Chat.System = "prose", 64, -1, -1, "search", "x"
	err := cfg.Validate()
	for _, want := range []string{
		`notation: unknown "prose" (valid: auto, tags, chat)`, "max_workers: 64: must be between 1 and 63", "worker.max_turns: -1", "worker.max_tokens: -1",
		`delegate: "search": it is a tag already`, `chat.system: "x": the planner and the worker have one each`,
	} {
		require.ErrorContains(t, err, want)
	}
	open := func(change func(*team.Config), specs ...string) error {
		cfg := team.DefaultConfig()
		tok := newTokenizer(t, cfg)
		change(&cfg)
		o := agents.Opening{Tokenizer: tok}
		for _, name := range specs {
			o.Tools = append(o.Tools, producers.ToolSpec{Name: name})
		}
		_, err := team.New(t.Context(), cfg, o)
		return err
	}
	require.NoError(t, open(func(*team.Config) {}, "search", "sql"))
	require.NoError(t, open(func(*team.Config) {}), "the limits allow no call")
	require.ErrorContains(t, open(func(*team.Config) {}, "sql"), `tags.tool: "search": a worker may not call it: the task has sql`)
	require.ErrorContains(t, open(func(c *team.Config) { c.Worker.Tools = []string{"sql"} }, "search", "sql"), `tags.tool: "search": a worker may not call it`)
	require.ErrorContains(t, open(func(c *team.Config) { c.Worker.Tools = []string{"shell"} }, "search"), `worker.tools[0]: "shell": the task has search`)
	require.ErrorContains(t, open(func(c *team.Config) { c.Planner.Tools = []string{"search"} }, "search"), "planner.tools: in tags a planner delegates alone")
	require.ErrorContains(t, open(func(*team.Config) {}, "search", "delegate"), `delegate: "delegate": the task has a tool of this name`)
	require.ErrorContains(t, open(func(c *team.Config) { c.Delegate = "ask" }, "search"), `the vocabulary has no token "<ask>"`)
}
