package selfplay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/selfplay"
	reward "github.com/weir-rl/weir/producers/rewards/selfplay"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

const (
	document = "sweden has capital stockholm , neighbour finland . finland has capital helsinki ."
	noise    = "peru has capital lima ."
	asked    = document + " ask for helsinki ."
	question = "what is the capital of the neighbour of sweden ?"
)

func newTokenizer(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	words := tokenizer.Words(document + noise + asked + question + "nothing found . oslo")
	slices.Sort(words)
	tok, err := tokenizer.New(tokenizer.Config{Special: tasks.SpecialTokens(), Words: slices.Compact(words), Unknown: "<unk>", Lowercase: true})
	require.NoError(tb, err)
	return tok
}

// cast is a policy that says the next line of each context's script, by the context's number.
type cast struct {
	tok   *tokenizer.Tokenizer
	lines map[string][]string

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
	if p.at[r.Context] == len(lines) {
		return nil, fmt.Errorf("context %q has said its lines", r.Context)
	}
	g := &generate.Result{Tokens: p.tok.Encode(lines[p.at[r.Context]]), Stop: schemas.GenerateStopToken}
	g.Tokens = g.Tokens[:min(len(g.Tokens), r.MaxTokens)]
	p.at[r.Context]++
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

func environment(tb testing.TB, policy *cast, cfg selfplay.Config, paid reward.Config) producers.Environment {
	tb.Helper()
	policy.tok = newTokenizer(tb)
	agent, err := selfplay.New(cfg, policy.tok)
	require.NoError(tb, err)
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), []tasks.Passage{
		{Title: "sweden", Text: "sweden has capital stockholm , neighbour finland ."}, {Title: "finland", Text: "finland has capital helsinki ."},
	})
	require.NoError(tb, err)
	worth, err := reward.New(paid)
	require.NoError(tb, err)
	return producers.Environment{Policy: policy, Tokenizer: policy.tok, Agent: agent, Tools: []producers.Tool{tool}, Reward: worth}
}

func game() *schemas.Ticket {
	return &schemas.Ticket{
		Run: "r", ID: "g0-0-0", Group: "g0-0", GroupSize: 1, Task: "t",
		Prompt: schemas.Prompt{ID: "p", Text: asked, Answers: []string{"Helsinki"}, Source: "game", Meta: map[string]string{
			selfplay.MetaDocument: document, selfplay.MetaAnswer: "helsinki", selfplay.MetaNoise: noise,
		}},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTurns: 6, MaxTokens: 96},
	}
}

func played(tb testing.TB, policy *cast, cfg selfplay.Config, paid reward.Config, ticket *schemas.Ticket) *schemas.Trajectory {
	tb.Helper()
	trajectory, _, err := producers.Rollout(context.Background(), ticket, environment(tb, policy, cfg, paid))
	require.NoError(tb, err)
	trajectory.Producer = "p"
	require.NoError(tb, trajectory.Validate())
	return trajectory
}

var solves = []string{"<search> sweden </search>", "<search> finland </search>", "<answer> helsinki </answer>"}

func three() selfplay.Config {
	cfg := selfplay.DefaultConfig()
	cfg.Solvers = 3
	return cfg
}

// One game by hand: each part sees what it should and no more, acts in a segment of its name, and gets its own reward.
func TestAGame(t *testing.T) {
	t.Parallel()
	policy := &cast{lines: map[string][]string{
		"":  {"<answer> " + question + " </answer>"},
		"1": {"helsinki </answer>"},
		"2": solves, "3": {"<answer> stockholm </answer>"}, "4": {"<search> sweden </search>", "<answer> stockholm </answer>"},
	}}
	trajectory := played(t, policy, three(), reward.DefaultConfig(), game())
	require.Equal(t, map[string]string{
		"": "<bos> " + asked, "1": "<bos> " + document + " " + noise + " " + question + " <answer>",
		"2": "<bos> " + question, "3": "<bos> " + question, "4": "<bos> " + question,
	}, policy.contexts)
	var agents []string
	for _, s := range trajectory.Segments {
		agents = append(agents, s.Agent)
	}
	require.Equal(t, []string{"proposer", "verifier", "solver-1", "solver-2", "solver-3"}, agents)
	require.Equal(t, schemas.StopAnswer, trajectory.Stop)
	require.Equal(t, question, trajectory.Answer, "what the game came to is the question")
	require.InDelta(t, 2.0/3, trajectory.AgentRewards["proposer"], 1e-12)
	delete(trajectory.AgentRewards, "proposer")
	require.Equal(t, map[string]float64{"verifier": 0, "solver-1": 1, "solver-2": 0, "solver-3": 0}, trajectory.AgentRewards)
	require.InDelta(t, 1.0/3, trajectory.Reward, 1e-12)
	require.InDelta(t, 1.0/3, trajectory.Rewards[reward.ComponentSolved], 1e-12)
	require.InDelta(t, 1, trajectory.Rewards[reward.ComponentValid], 0)
}

// Invariant: whatever the parts do, the rewards are those of the rule: a valid question is worth 1 - p or 4p(1-p) of the share p of the
// solvers that were right, any other what is configured; each solver 1 or 0; nobody solves a question that is not valid.
func TestTheRewardsAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg, paid := selfplay.DefaultConfig(), reward.DefaultConfig()
		cfg.Solvers = rapid.IntRange(1, 6).Draw(rt, "solvers")
		paid.Proposer = rapid.SampledFrom([]string{reward.ByDifficulty, reward.ByUncertainty}).Draw(rt, "rule")
		paid.Invalid = float64(rapid.IntRange(-4, 0).Draw(rt, "invalid")) / 4
		ask := rapid.SampledFrom([]string{
			"<answer> " + question + " </answer>", "<answer> what is the capital of helsinki ? </answer>", "what </answer>", "<search> sweden </search>",
		}).Draw(rt, "ask")
		reads := rapid.SampledFrom([]string{"helsinki </answer>", "lima </answer>", "</answer>", "helsinki"}).Draw(rt, "reads")
		policy := &cast{lines: map[string][]string{"": {ask}, "1": {reads}}}
		answers, right := strings.Contains(ask, question), 0
		valid := answers && reads == "helsinki </answer>"
		want := map[string]float64{selfplay.Proposer: paid.Invalid}
		if answers {
			want[selfplay.Verifier] = 0
		}
		for i := range cfg.Solvers {
			lines := rapid.SampledFrom([][]string{
				solves, solves[2:], {"<answer> oslo </answer>"}, {"helsinki"}, slices.Repeat(solves[:1], 9),
			}).Draw(rt, "solver")
			policy.lines[fmt.Sprint(i+2)] = lines
			if !valid {
				continue
			}
			want[selfplay.Solver(i+1)] = 0
			if lines[len(lines)-1] == solves[2] {
				want[selfplay.Solver(i+1)] = 1
				right++
			}
		}
		if valid {
			p := float64(right) / float64(cfg.Solvers)
			want[selfplay.Proposer] = 1 - p
			if paid.Proposer == reward.ByUncertainty {
				want[selfplay.Proposer] = 4 * p * (1 - p)
			}
		}
		ticket := game()
		ticket.Limits.MaxTurns = 3*cfg.Solvers + rapid.IntRange(0, cfg.Solvers-1).Draw(rt, "spare")
		trajectory := played(t, policy, cfg, paid, ticket)
		require.Equal(rt, want, trajectory.AgentRewards)
		require.InDelta(rt, float64(right)/float64(cfg.Solvers), trajectory.Reward, 1e-12)
		calls := map[int]int{}
		for _, turn := range trajectory.Turns {
			calls[turn.Segment] += len(turn.Calls)
		}
		for _, n := range calls {
			require.LessOrEqual(rt, n, 3, "each solver has its share of the calls")
		}
	})
}

// A proposer that may search shows the verifier what it found, and has a share of the calls.
func TestAProposerThatSearches(t *testing.T) {
	t.Parallel()
	cfg := three()
	cfg.ProposerSearches, cfg.Solvers = true, 1
	policy := &cast{lines: map[string][]string{
		"": {"<search> finland </search>", "<answer> " + question + " </answer>"}, "1": {"helsinki </answer>"}, "2": solves,
	}}
	trajectory := played(t, policy, cfg, reward.DefaultConfig(), game())
	require.Contains(t, policy.contexts["1"], document+" finland has capital helsinki . "+noise)
	require.Equal(t, map[string]float64{"proposer": 0, "verifier": 0, "solver-1": 1}, trajectory.AgentRewards)
}

// A prompt without a document is a plain question, which evaluations ask.
func TestAPlainQuestionIsAnsweredByOneSolver(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]float64{"helsinki": 1, "oslo": 0} {
		ticket := game()
		ticket.Prompt = schemas.Prompt{ID: "q", Text: question, Answers: []string{"Helsinki"}, Source: "2n"}
		policy := &cast{lines: map[string][]string{"": {"<search> sweden </search>", "<answer> " + answer + " </answer>"}}}
		trajectory := played(t, policy, three(), reward.DefaultConfig(), ticket)
		require.InDelta(t, want, trajectory.Reward, 0)
		require.InDelta(t, want, trajectory.Rewards[producers.ComponentExactMatch], 0)
		require.Empty(t, trajectory.AgentRewards)
		require.Equal(t, answer, trajectory.Answer)
		require.Len(t, trajectory.Segments, 1)
		require.Empty(t, trajectory.Segments[0].Agent)
	}
}

// Without tools the solvers answer from what they know, and a game goes on all the same.
func TestAGameWithoutTools(t *testing.T) {
	t.Parallel()
	ticket := game()
	ticket.Limits.MaxTurns = 0
	policy := &cast{lines: map[string][]string{
		"": {"<answer> " + question + " </answer>"}, "1": {"helsinki </answer>"}, "2": {"helsinki </answer>"}, "3": {"oslo </answer>"}, "4": {"oslo"},
	}}
	trajectory := played(t, policy, three(), reward.DefaultConfig(), ticket)
	require.Equal(t, "<bos> "+question+" <answer>", policy.contexts["2"])
	require.InDelta(t, 2.0/3, trajectory.AgentRewards["proposer"], 1e-12)
}

// A game that a limit of the whole episode cuts off pays its proposer nothing: the solvers had no fair chance.
func TestAGameThatIsCutOff(t *testing.T) {
	t.Parallel()
	ticket := game()
	ticket.Limits.MaxSegments = 3
	policy := &cast{lines: map[string][]string{"": {"<answer> " + question + " </answer>"}, "1": {"helsinki </answer>"}}}
	trajectory := played(t, policy, three(), reward.DefaultConfig(), ticket)
	require.Equal(t, schemas.StopSegments, trajectory.Stop)
	require.InDelta(t, 0, trajectory.AgentRewards["proposer"], 0)
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := selfplay.DefaultConfig()
	cfg.Solvers, cfg.MaxInvalid = 0, 0
	_, err := selfplay.New(cfg, newTokenizer(t))
	require.ErrorContains(t, err, "solvers: 0")
	require.ErrorContains(t, err, "max_invalid: 0")
	_, err = reward.New(reward.Config{Proposer: "luck"})
	require.ErrorContains(t, err, "proposer: unknown \"luck\"")
}

func TestAQuestionGivesItsAnswerAway(t *testing.T) {
	t.Parallel()
	for q, want := range map[string]bool{
		"what is the capital of helsinki ?": true, "Helsinki?": true, "what is the capital of finland ?": false, "the helsinkis": false,
	} {
		require.Equal(t, want, selfplay.GivesAway(q, "helsinki"), q)
	}
	require.True(t, selfplay.GivesAway("where is guinea - bissau ?", "Guinea-Bissau"))
	require.False(t, selfplay.Right("", ""), "no answer is not the answer")
}
