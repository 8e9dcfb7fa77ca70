package producers_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// rollOf runs episodes in an environment.
func rollOf(env producers.Environment) producers.Roll {
	return func(ctx context.Context, t *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		return producers.Rollout(ctx, t, env)
	}
}

// continuationsOf continues an episode of a ticket.
func continuationsOf(ticket *schemas.Ticket, was *schemas.Trajectory) *producers.Continuations {
	return &producers.Continuations{Was: was, Ticket: *ticket, ToolSeed: ticket.Seed, Name: "again", Samples: 3, Seed: 5, Concurrency: 2}
}

// With the same policy and the same answers of tools an episode that goes on with its own random numbers after any of its turns is the
// episode, token for token; and every continuation has the given turns as they were.
func TestPropertyAnEpisodeContinuedWithItsOwnNumbersIsTheEpisode(t *testing.T) {
	tok := newTokenizer(t)
	rapid.Check(t, func(r *rapid.T) {
		asked := 0
		env := newEnvironment(t, drawn(&asked))
		env.Agent, env.Tokenizer = agentFunc(wandering), tok
		ticket := newTicket(0)
		ticket.Seed = rapid.Uint64().Draw(r, "seed")
		ticket.Limits.MaxTokens = rapid.IntRange(3, 40).Draw(r, "max_tokens")
		was, _, err := producers.Rollout(t.Context(), ticket, env)
		require.NoError(r, err)
		turns := rapid.IntRange(0, len(was.Turns)).Draw(r, "turns")
		c := continuationsOf(ticket, was)
		c.Concurrency = 1 // drawn counts
		again, err := c.Again(t.Context(), rollOf(env), turns)
		require.NoError(r, err)
		require.Equal(r, was.Segments, again.Segments)
		require.Equal(r, was.Stop, again.Stop)

		state, err := c.From(t.Context(), rollOf(env), turns)
		require.NoError(r, err)
		require.Len(r, state.Episodes, c.Samples)
		sampled := 0
		for _, went := range state.Episodes {
			for i, turn := range was.Turns[:turns] {
				now := went.Turns[i]
				require.Equal(r, was.Segments[turn.Segment].Tokens[:turn.End], went.Segments[now.Segment].Tokens[:now.End])
			}
			for _, turn := range went.Turns[turns:] {
				sampled += turn.End - turn.Start
			}
		}
		require.Equal(r, sampled, state.Sampled())
	})
}

// coins is an agent of turns of a token each, of which any may be the reward's: a walk whose states can be enumerated.
func coins(turns int) agentFunc {
	return func(ctx context.Context, e *producers.Episode) error {
		if err := e.Begin([]int32{1}); err != nil {
			return err
		}
		for range turns {
			if _, _, err := e.Generate(ctx, producers.GenerateOptions{MaxTokens: 1}); err != nil {
				return err
			}
			if _, err := e.Call(ctx, "pay", ""); err != nil {
				return err
			}
		}
		e.Finish("", schemas.StopAnswer)
		return nil
	}
}

// chanceOfNine is the chance that token 9 comes after tokens; else 8 does.
func chanceOfNine(tokens []int32) float64 { return 0.2 + 0.15*float64(nines(tokens)) }

// nines counts the tokens 9.
func nines(tokens []int32) (n int) {
	for _, token := range tokens {
		if token == 9 {
			n++
		}
	}
	return n
}

// tossed is a policy that samples by chanceOfNine.
func tossed(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	h := fnv.New64a()
	fmt.Fprint(h, r.Seed, r.Tokens)
	token := int32(8)
	if float64(schemas.MixSeed(h.Sum64())>>11)/(1<<53) < chanceOfNine(r.Tokens) {
		token = 9
	}
	return &generate.Result{Tokens: []int32{token}, Logprobs: []float32{-1}, Versions: []int32{0}, Stop: schemas.GenerateLength}, nil
}

// paying is a tool whose every call is a reward.
type paying struct{ reward float64 }

func (p paying) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "pay"} }

func (p paying) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Reward: &p.reward}, nil
}

// lastText pays 3 for an episode whose last turn says a text.
type lastText string

func (l lastText) Score(_ context.Context, _ *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	if t.Turns[len(t.Turns)-1].Text == string(l) {
		return producers.Score{Total: 3}, nil
	}
	return producers.Score{}, nil
}

// The values of states are, within their standard errors, those that all outcomes of a small world give; and the advantages of the turns of
// an episode sum up to what it brought less the value of its first state.
func TestValuesOfStatesAreThoseOfAllOutcomes(t *testing.T) {
	const turns, pay = 4, 0.125
	outcome := func(last []int32) float64 { return 3 * float64(nines(last)) }
	var exact func(tokens []int32, left int) float64 // with what the tool pays for the turns that are left
	exact = func(tokens []int32, left int) float64 {
		if left == 0 {
			return outcome(tokens[len(tokens)-1:])
		}
		p := chanceOfNine(tokens)
		next := func(token int32) float64 { return exact(append(append([]int32{}, tokens...), token), left-1) }
		return pay + p*next(9) + (1-p)*next(8)
	}
	env := newEnvironment(t, policyFunc(tossed))
	env.Agent, env.Tools, env.Reward = coins(turns), []producers.Tool{paying{pay}}, lastText(env.Tokenizer.Decode([]int32{9}))
	ticket := newTicket(0)
	was, _, err := producers.Rollout(t.Context(), ticket, env)
	require.NoError(t, err)
	c := continuationsOf(ticket, was)
	c.Samples = 4000
	values := make([]float64, turns+1)
	values[turns] = was.Reward
	for k := range turns {
		state, err := c.From(t.Context(), rollOf(env), k)
		require.NoError(t, err)
		mean, e := state.Value()
		want := exact(was.Segments[0].Tokens[:was.Turns[k].Start], turns-k)
		require.InDelta(t, want, mean, 4*e, "after %d turns", k)
		require.Greater(t, e, 0.0)
		require.Less(t, e, 0.05)
		require.Equal(t, (turns-k)*c.Samples, state.Sampled())
		values[k] = mean
	}
	sum := 0.0
	for k := range turns {
		sum += producers.TurnAdvantage(was.Turns[k].Credit(), values[k], values[k+1])
	}
	require.InDelta(t, producers.ReturnAfter(was, 0)-values[0], sum, 1e-9)
	require.InDelta(t, was.Reward+turns*pay, producers.ReturnAfter(was, 0), 1e-9)

	c.Samples = 1
	state, err := c.From(t.Context(), rollOf(env), 1)
	require.NoError(t, err)
	_, e := state.Value()
	require.True(t, math.IsNaN(e), "one continuation has no standard error")
}

// Invariant: a continuation that is counted was shown the same tokens after the turns as the episode was.
func TestInvariantAContinuationThatIsCountedWasShownTheSameTokens(t *testing.T) {
	ticket, was := parentOf(t, rightLines, 3, 4, 5)
	for changed, want := range []string{
		1: "after 2 of its turns: turn 1: the policy is shown ",
		2: "after 2 of its turns: turn 2: the policy is shown other tokens than it was",
	} {
		if want == "" {
			continue
		}
		env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: []string{"<answer> helsinki </answer>"}})
		env.Tools[0] = &countingTool{Tool: env.Tools[0], change: int32(changed)}
		c := continuationsOf(ticket, was)
		c.Samples = 1
		_, err := c.From(t.Context(), rollOf(env), 2)
		var different *producers.DifferentStateError
		require.ErrorAs(t, err, &different)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "tools called before: search, of which one answers otherwise than it did: go on from an earlier turn")
	}
	c := continuationsOf(ticket, was)
	_, err := c.From(t.Context(), nil, 4)
	require.ErrorContains(t, err, "trajectory g0-0-0 has 3 turns: it cannot go on after 4")
}

// A call whose result is replaced is not made, the calls before it are; and the agent is shown the other result.
func TestAReplacedResultIsShownAndItsToolIsNotCalled(t *testing.T) {
	ticket, was := parentOf(t, rightLines, 3, 4, 5)
	tok := newTokenizer(t)
	env := newEnvironment(t, &scripted{tok: tok, lines: []string{"<answer> stockholm </answer>"}})
	tool := &countingTool{Tool: env.Tools[0]}
	env.Tools[0], env.Results = tool, map[int]string{1: "finland has capital stockholm ."}
	c := continuationsOf(ticket, was)
	c.Samples, c.OtherResult = 1, true
	state, err := c.From(t.Context(), rollOf(env), 2)
	require.NoError(t, err)
	require.EqualValues(t, 1, tool.calls.Load(), "the first call is made again, the second is replaced")
	went := state.Episodes[0]
	require.Equal(t, "stockholm", went.Answer)
	last := went.Turns[2]
	shown := tok.Decode(went.Segments[0].Tokens[went.Turns[1].End:last.Start])
	require.Contains(t, shown, "finland has capital stockholm")
	require.Equal(t, was.Segments[0].Tokens[:was.Turns[1].End], went.Segments[0].Tokens[:went.Turns[1].End])
}
