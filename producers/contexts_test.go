package producers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// one samples one token each time, the first a stop token.
func one(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	return &generate.Result{Tokens: []int32{7}, Logprobs: []float32{-1}, Versions: []int32{3}, Stop: schemas.GenerateStopToken}, nil
}

// calling is a tool that is one function.
type calling struct {
	name string
	call func(context.Context, producers.Call) (producers.Observation, error)
}

func (c calling) Spec() producers.ToolSpec { return producers.ToolSpec{Name: c.name} }
func (c calling) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	return c.call(ctx, call)
}

// Two agents act in contexts of their own, at the same time: each has its cache, its seeds and its segments, and a trajectory that is
// valid and has the turns in the order of the segments.
func TestContextsOfOneEpisode(t *testing.T) {
	var mu sync.Mutex
	seeds, caches := map[uint64]bool{}, map[string]bool{}
	var forgot []string
	policy := forgetting{policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		seeds[r.Seed], caches[r.Cache()] = true, true
		return one(ctx, r)
	}), &forgot}
	env := newEnvironment(t, policy)
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		proposer, err := e.Open("proposer", []int32{1})
		if err != nil {
			return err
		}
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil { // the first context is the episode's own
			return err
		}
		var solving sync.WaitGroup
		for i := range 2 {
			solver, err := e.Open("solver", []int32{1, int32(i)})
			if err != nil {
				return err
			}
			solving.Go(func() {
				for range 3 {
					_, _, err := solver.Generate(ctx, producers.GenerateOptions{})
					_, callErr := solver.Call(ctx, "search", "sweden")
					if err := errors.Join(err, callErr, solver.Observe([]int32{5})); err != nil {
						panic(err)
					}
				}
				if err := solver.Begin([]int32{1, 2, 3}); err != nil {
					panic(err)
				}
				if _, _, err := solver.Generate(ctx, producers.GenerateOptions{}); err != nil {
					panic(err)
				}
			})
		}
		solving.Wait()
		if err := proposer.Observe([]int32{9}); err != nil {
			return err
		}
		_, _, err = proposer.Generate(ctx, producers.GenerateOptions{})
		proposer.Answer("sooner")
		proposer.Answer("what is x ?")
		e.Finish("x", schemas.StopAnswer)
		return err
	})
	env.Reward = scored(func(tr *producers.Transcript) producers.Score {
		turns := make([]float64, len(tr.Turns))
		for i, turn := range tr.Turns {
			turns[i] = float64(turn.Context)
		}
		return producers.Score{Total: 1, Turns: turns, Agents: map[string]float64{"proposer": 0.25}}
	})
	ticket := newTicket(0)
	ticket.Limits.MaxTurns = 6
	trajectory, transcript, err := producers.Rollout(context.Background(), ticket, env)
	require.NoError(t, err)
	trajectory.Producer = "p"
	require.NoError(t, trajectory.Validate())
	var agents []string
	for _, s := range trajectory.Segments {
		agents = append(agents, s.Agent)
	}
	require.Equal(t, []string{"proposer", "solver", "solver", "solver", "solver"}, agents)
	require.Len(t, seeds, 5, "a segment has a seed of its own")
	require.Equal(t, map[string]bool{"g0-0-0": true, "g0-0-0/1": true, "g0-0-0/2": true}, caches)
	require.ElementsMatch(t, []string{"g0-0-0", "g0-0-0/1", "g0-0-0/2"}, forgot)
	require.Len(t, trajectory.Turns, 10)
	at := [2]int{}
	for i, turn := range trajectory.Turns {
		require.Equal(t, 1, slices.Compare([]int{turn.Segment, turn.Start + 1}, at[:]), "turn %d", i)
		at = [2]int{turn.Segment, turn.Start}
		require.InDelta(t, float64(turn.Segment), turn.Reward, 0)
	}
	require.Equal(t, map[string]float64{"proposer": 0.25}, trajectory.AgentRewards)
	require.Len(t, transcript.Contexts, 5)
	require.Equal(t, "what is x ?", transcript.Contexts[0].Answer)
	require.Empty(t, transcript.Contexts[1].Answer)
	require.Equal(t, 6, transcript.Calls())
}

type forgetting struct {
	policyFunc
	names *[]string
}

func (f forgetting) Forget(name string) error {
	*f.names = append(*f.names, name)
	return nil
}

func TestScoresOfTurnsAndAgentsThatAreNotThereAreRefused(t *testing.T) {
	for want, score := range map[string]producers.Score{
		"2 rewards of turns for 3 turns": {Turns: []float64{1, 2}},
		`a reward for agent "judge"`:     {Agents: map[string]float64{"judge": 1}},
	} {
		env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
		env.Reward = scored(func(*producers.Transcript) producers.Score { return score })
		_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
		require.ErrorContains(t, err, want)
	}
}

// The limits on the whole trajectory hold over all segments.
func TestLimitsOfTheWholeTrajectory(t *testing.T) {
	for _, tc := range []struct {
		limits schemas.Limits
		stop   schemas.StopReason
		tokens int
	}{
		{schemas.Limits{MaxTokens: 8, MaxTotalTokens: 21}, schemas.StopTokens, 21},
		{schemas.Limits{MaxTokens: 8, MaxTotalTokens: 18}, schemas.StopTokens, 16},
		{schemas.Limits{MaxTokens: 8, MaxSegments: 3}, schemas.StopSegments, 24},
	} {
		env := newEnvironment(t, policyFunc(one))
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			for {
				if err := e.Begin([]int32{1, 2, 3}); err != nil {
					return err
				}
				for e.Room() > 0 {
					if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
						return err
					}
				}
			}
		})
		ticket := newTicket(0)
		ticket.Limits = tc.limits
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, tc.stop, trajectory.Stop)
		require.Equal(t, tc.tokens, trajectory.Tokens())
	}
}

// Calls of one turn run at the same time, and come back in their order; those beyond the limit are not made and are told so.
func TestCallsOfOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newEnvironment(t, policyFunc(one))
		wait := calling{"wait", func(_ context.Context, c producers.Call) (producers.Observation, error) {
			<-time.After(time.Duration(10-c.Index) * time.Second)
			return producers.Observation{Text: c.Arguments}, nil
		}}
		env.Tools = []producers.Tool{wait}
		var said []producers.Observation
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.NoError(t, e.Begin([]int32{1}))
			_, _, err := e.Generate(ctx, producers.GenerateOptions{})
			require.NoError(t, err)
			start := time.Now()
			said, err = e.Calls(ctx, []producers.ToolCall{{Name: "wait", Arguments: "a"}, {Name: "wait", Arguments: "b"}, {Name: "nothing"}, {Name: "wait", Arguments: "c"}})
			require.Equal(t, 10*time.Second, time.Since(start))
			require.NoError(t, err)
			_, err = e.Calls(ctx, []producers.ToolCall{{Name: "wait"}})
			return err
		})
		ticket := newTicket(0)
		ticket.Limits.MaxTurns = 3
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, schemas.StopTurns, trajectory.Stop)
		var texts []string
		for _, o := range said {
			texts = append(texts, o.Text)
		}
		require.Equal(t, []string{"a", "b", `error: there is no tool named "nothing"`, "error: not called: the limit is 3 calls"}, texts)
		require.Len(t, trajectory.Turns[0].Calls, 3, "what was not made is not recorded")
		require.True(t, trajectory.Turns[0].Calls[2].Failed)
	})
}

// A tool that panics costs its call; the agent is told, and the trace is in the trajectory.
func TestAPanicOfAToolCostsItsCall(t *testing.T) {
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	env.Tools = []producers.Tool{toolFunc(func(producers.Call) (producers.Observation, error) { panic("out of cheese") })}
	trajectory, transcript, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.NoError(t, err)
	require.Equal(t, schemas.StopAnswer, trajectory.Stop)
	require.Equal(t, "error: the tool broke down", transcript.Turns[0].Observation)
	require.Contains(t, trajectory.Turns[0].Calls[0].Error, "panic: out of cheese")
	require.Contains(t, trajectory.Turns[0].Calls[0].Error, "contexts_test.go")
}

// What an agent made up and what a tool failed with are bounded on the wire.
func TestTextsOfCallsAreBounded(t *testing.T) {
	env := newEnvironment(t, policyFunc(one))
	env.Tools = []producers.Tool{calling{"fail", func(context.Context, producers.Call) (producers.Observation, error) {
		return producers.Observation{}, errors.New(strings.Repeat("é", 1<<17) + "\xff")
	}}}
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		require.NoError(t, e.Begin([]int32{1}))
		_, _, err := e.Generate(ctx, producers.GenerateOptions{})
		require.NoError(t, err)
		_, err = e.Calls(ctx, []producers.ToolCall{{Name: "fail", Arguments: strings.Repeat("a", 1<<17)}, {Name: "\xff"}, {}})
		return err
	})
	trajectory, _, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.NoError(t, err)
	trajectory.Producer = "p"
	require.NoError(t, trajectory.Validate())
	require.Len(t, trajectory.Turns[0].Calls[0].Error, schemas.MaxCallText)
}

// Invariant: the sum of rewards on the wire is the sum that tools and scorer returned.
func TestTheRewardsOnTheWireAreThoseThatWereGiven(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		env := newEnvironment(t, policyFunc(one))
		var given atomic.Int64 // in 64ths, which floats add up exactly
		env.Tools = []producers.Tool{calling{"pay", func(_ context.Context, c producers.Call) (producers.Observation, error) {
			var cents int64
			_, err := fmt.Sscan(c.Arguments, &cents)
			given.Add(cents)
			reward := float64(cents) / 64
			return producers.Observation{Reward: &reward}, err
		}}}
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			if err := e.Begin([]int32{1}); err != nil {
				return err
			}
			for range rapid.IntRange(1, 5).Draw(rt, "turns") {
				if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
					return err
				}
				for range rapid.IntRange(0, 2).Draw(rt, "rounds") {
					var calls []producers.ToolCall
					for range rapid.IntRange(0, 4).Draw(rt, "calls") {
						calls = append(calls, producers.ToolCall{Name: "pay", Arguments: fmt.Sprint(rapid.IntRange(-100, 100).Draw(rt, "cents"))})
					}
					if _, err := e.Calls(ctx, calls); err != nil {
						return err
					}
				}
				if rapid.Bool().Draw(rt, "anew") {
					if err := e.Begin([]int32{1, 2}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		env.Reward = scored(func(tr *producers.Transcript) producers.Score {
			score := producers.Score{Total: 0.5}
			given.Add(32)
			for range tr.Turns {
				cents := rapid.IntRange(-100, 100).Draw(rt, "turn")
				score.Turns = append(score.Turns, float64(cents)/64)
				given.Add(int64(cents))
			}
			return score
		})
		ticket := newTicket(0)
		ticket.Limits.MaxTurns = rapid.IntRange(1, 12).Draw(rt, "limit")
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		require.NoError(rt, err)
		data, err := schemas.Marshal(trajectory)
		require.NoError(rt, err)
		var wire schemas.Trajectory
		require.NoError(rt, schemas.Unmarshal(data, &wire))
		sum := wire.Reward
		for _, turn := range wire.Turns {
			sum += turn.Credit()
		}
		require.InDelta(rt, float64(given.Load())/64, sum, 0)
	})
}

// letters is a tokenizer of pieces of text, the longest first.
type pieces []string

func (p pieces) Encode(text string) []int32 {
	var out []int32
	for len(text) > 0 {
		best := -1
		for i, piece := range p {
			if strings.HasPrefix(text, piece) && (best < 0 || len(piece) > len(p[best])) {
				best = i
			}
		}
		out, text = append(out, int32(best)), text[len(p[best]):]
	}
	return out
}

func (p pieces) Decode(ids []int32) string {
	var out string
	for _, id := range ids {
		out += p[id]
	}
	return out
}

func (p pieces) ID(token string) (int32, bool) {
	i := slices.Index(p, token)
	return int32(i), i >= 0
}

func (p pieces) Size() int { return len(p) }

// A turn ends at its stop text however the text is cut into tokens, and stays one turn.
func TestATurnEndsAtAStopText(t *testing.T) {
	tok := pieces{"a", "b", "`", "``", "```", "\n", "``\n", "<end>", "x`y"}
	for _, tc := range []struct {
		sampled string // as pieces, separated by spaces
		options producers.GenerateOptions
		want    string
		stop    schemas.GenerateStop
	}{
		{"a ` b ` `` \\n a", producers.GenerateOptions{StopTexts: []string{"```\n"}}, "a`b```\n", schemas.GenerateStopToken},
		{"a x`y ``\\n b ` ``\\n a", producers.GenerateOptions{StopTexts: []string{"```\n"}}, "ax`y``\nb```\n", schemas.GenerateStopToken},
		{"a <end> b", producers.GenerateOptions{StopTexts: []string{"<end>", "```"}}, "a<end>", schemas.GenerateStopToken},
		{"a ` b ` b b b", producers.GenerateOptions{StopTexts: []string{"``"}, MaxTokens: 5}, "a`b`b", schemas.GenerateLength},
		{"a ` b", producers.GenerateOptions{StopTexts: []string{"``"}, MaxTokens: 2}, "a`", schemas.GenerateLength},
		{"a \\n b", producers.GenerateOptions{StopTexts: []string{"``"}, Stop: []int32{5}}, "a\n", schemas.GenerateStopToken},
	} {
		var script []int32
		for piece := range strings.FieldsSeq(tc.sampled) {
			id, ok := tok.ID(strings.ReplaceAll(piece, "\\n", "\n"))
			require.True(t, ok)
			script = append(script, id)
		}
		at, env := 0, newEnvironment(t, nil)
		env.Tokenizer = tok
		env.Policy = policyFunc(func(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
			g := &generate.Result{Stop: schemas.GenerateLength}
			for len(g.Tokens) < r.MaxTokens && at < len(script) {
				g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, script[at]), append(g.Logprobs, -1), append(g.Versions, 0)
				at++
				if slices.Contains(r.StopTokens, script[at-1]) {
					g.Stop = schemas.GenerateStopToken
					break
				}
			}
			return g, nil
		})
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.NoError(t, e.Begin([]int32{0}))
			sampled, stop, err := e.Generate(ctx, tc.options)
			require.NoError(t, err)
			require.Equal(t, tc.want, tok.Decode(sampled))
			require.Equal(t, tc.stop, stop)
			return nil
		})
		trajectory, _, err := producers.Rollout(context.Background(), newTicket(0), env)
		require.NoError(t, err)
		require.Len(t, trajectory.Turns, 1)
	}
	env := newEnvironment(t, policyFunc(one))
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		require.NoError(t, e.Begin([]int32{0}))
		_, _, err := e.Generate(ctx, producers.GenerateOptions{StopTexts: []string{"é"}})
		return err
	})
	_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.ErrorContains(t, err, `stop text "é"`)
}

// An agent from outside can bring a reward; the first one counts.
func TestAnAgentCanPostItsReward(t *testing.T) {
	env := newEnvironment(t, policyFunc(one))
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		require.Equal(t, "t", e.Task())
		require.Equal(t, uint64(42), e.Seed())
		require.NoError(t, e.Begin([]int32{1}))
		_, _, err := e.Generate(ctx, producers.GenerateOptions{})
		e.Post(0.75, map[string]float64{"tests": 3})
		e.Post(math.Inf(1), nil)
		return err
	})
	env.Reward = scored(func(tr *producers.Transcript) producers.Score { return *tr.Posted })
	trajectory, _, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.NoError(t, err)
	require.InDelta(t, 0.75, trajectory.Reward, 0)
	require.Equal(t, map[string]float64{"tests": 3}, trajectory.Rewards)
}
