package producers_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// parentOf rolls a parent out.
func parentOf(t *testing.T, lines []string, versions ...int32) (*schemas.Ticket, *schemas.Trajectory) {
	t.Helper()
	ticket := newTicket(0)
	parent, _, err := producers.Rollout(t.Context(), ticket, newEnvironment(t, &scripted{tok: newTokenizer(t), lines: lines, versions: versions}))
	require.NoError(t, err)
	return ticket, parent
}

// forkOf is a ticket that goes on from a turn of a parent.
func forkOf(ticket *schemas.Ticket, parent *schemas.Trajectory, turns int) *schemas.Ticket {
	out := *ticket
	out.ID, out.Group, out.Seed, out.Fork = "g0-0-1", "g0-0", 43, schemas.ForkAt(parent, turns, ticket.Seed)
	return &out
}

// countingTool counts the calls that reach a tool and may answer one of them otherwise.
type countingTool struct {
	producers.Tool
	calls  atomic.Int32
	seeds  []uint64
	change int32 // the call that is answered otherwise, from 1; 0 is none
}

func (c *countingTool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	n := c.calls.Add(1)
	c.seeds = append(c.seeds, call.Seed)
	if n == c.change {
		return producers.Observation{Text: "nothing found"}, nil
	}
	return c.Tool.Call(ctx, call)
}

// A fork has its parent's first turns with their log-probabilities and versions; their calls are made anew, and then the policy is asked.
func TestAForkBeginsAsItsParentDid(t *testing.T) {
	ticket, parent := parentOf(t, rightLines, 3, 4, 5)
	for turns := 1; turns <= 2; turns++ {
		lines := []string{"<search> sweden </search>", "<answer> stockholm </answer>"}[turns-1:]
		policy := &scripted{tok: newTokenizer(t), lines: lines, versions: []int32{7, 8}}
		env := newEnvironment(t, policy)
		tool := &countingTool{Tool: env.Tools[0]}
		env.Tools[0] = tool
		fork := forkOf(ticket, parent, turns)
		got, _, err := producers.Rollout(t.Context(), fork, env)
		require.NoError(t, err)
		got.Producer = "p"
		require.NoError(t, got.Validate())

		require.Equal(t, &schemas.Forked{Parent: parent.ID, Turns: turns}, got.Forked)
		require.Equal(t, fork.ID, got.ID)
		now, was, end := got.Segments[0], parent.Segments[0], parent.Turns[turns-1].End
		require.Equal(t, was.Tokens[:end], now.Tokens[:end])
		require.Equal(t, was.ActionMask[:end], now.ActionMask[:end])
		require.Equal(t, was.Logprobs[:end], now.Logprobs[:end])
		require.Equal(t, was.Versions[:end], now.Versions[:end])
		require.Equal(t, int64(3), got.OldestVersion(), "the staleness bound sees the parent's tokens")
		require.Len(t, policy.requests, len(lines), "the policy samples what is new, and nothing else")
		require.Equal(t, now.Tokens[:got.Turns[turns].Start], policy.requests[0].Tokens)
		require.Equal(t, uint64(43), policy.requests[0].Seed)
		require.EqualValues(t, 2, tool.calls.Load(), "the calls of replayed turns are made")
		for _, seed := range tool.seeds {
			require.Equal(t, ticket.Seed, seed, "tools draw what they drew for the parent")
		}
		for i := range turns {
			was, now := parent.Turns[i].Calls[0], got.Turns[i].Calls[0]
			require.Equal(t, was.Tool+was.Arguments, now.Tool+now.Arguments)
		}
		require.InDelta(t, 0.1, got.Reward, 1e-12, "it is scored by its own answer")
	}
}

// A tool that answers otherwise ends the replay: the policy goes on from what it is shown now.
func TestAForkDivergesWhereAToolAnswersOtherwise(t *testing.T) {
	ticket, parent := parentOf(t, rightLines, 3, 4, 5)
	policy := &scripted{tok: newTokenizer(t), lines: []string{"<answer> helsinki </answer>"}, versions: []int32{9}}
	env := newEnvironment(t, policy)
	env.Tools[0] = &countingTool{Tool: env.Tools[0], change: 1}
	got, _, err := producers.Rollout(t.Context(), forkOf(ticket, parent, 2), env)
	require.NoError(t, err)
	require.Equal(t, 1, got.Forked.Turns)
	require.Regexp(t, `^turn 1: the policy is shown \d+ tokens and was shown \d+, the first \d+ of them the same$`, got.Forked.Diverged)
	require.Len(t, got.Turns, 2)
	require.Equal(t, []int32{3}, uniq(got.Segments[0].Versions[got.Turns[0].Start:got.Turns[0].End]))
	require.Equal(t, []int32{9}, uniq(got.Segments[0].Versions[got.Turns[1].Start:got.Turns[1].End]))
	require.NotEqual(t, parent.Segments[0].Tokens[:got.Turns[1].Start], got.Segments[0].Tokens[:got.Turns[1].Start])
}

// What else keeps a fork from its parent's turns is named, and the episode goes on by itself.
func TestWhyAForkDiverges(t *testing.T) {
	ticket, parent := parentOf(t, rightLines)
	for _, c := range []struct {
		name  string
		spoil func(*schemas.Ticket)
		turns int
		want  string
	}{
		{"temperature", func(t *schemas.Ticket) { t.Sampling.Temperature = 0.5 }, 0, "turn 0: temperature is 0.5, and was 1"},
		{"room", func(t *schemas.Ticket) { t.Sampling.MaxTokens = 2 }, 0, "turn 0: has 3 tokens, and there is room for 2"},
		{"prompt", func(t *schemas.Ticket) { t.Prompt.Text = "what is the currency of finland ?" }, 0, "turn 0: the policy is shown 8 tokens and was shown 11, the first 4 of them the same"},
		{"agent", func(t *schemas.Ticket) { t.Fork.Segments[0].Agent = "solver" }, 0, `turn 0: agent "" acts, and "solver" did`},
		{"turn limit", func(t *schemas.Ticket) { t.Limits.MaxTurns = 1 }, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fork := forkOf(ticket, parent, 2)
			c.spoil(fork)
			got, _, err := producers.Rollout(t.Context(), fork, newEnvironment(t, &scripted{tok: newTokenizer(t), lines: []string{"<answer> helsinki </answer>"}}))
			require.NoError(t, err)
			require.Equal(t, &schemas.Forked{Parent: parent.ID, Turns: c.turns, Diverged: c.want}, got.Forked)
		})
	}
	fork := forkOf(ticket, parent, 2)
	fork.Limits.MaxTurns = 1
	fork.Fork.Turns = append(fork.Fork.Turns, fork.Fork.Turns[1])
	got, _, err := producers.Rollout(t.Context(), fork, newEnvironment(t, &scripted{tok: newTokenizer(t)}))
	require.NoError(t, err)
	require.Equal(t, "turn 2: the episode ended before it", got.Forked.Diverged)
}

// wandering is an agent that draws what it does: turns of several lengths, texts and tokens that end them, observations, calls, contexts
// that it begins anew.
func wandering(ctx context.Context, e *producers.Episode) error {
	random := rand.New(rand.NewPCG(e.Seed(), 1))
	prompt := []int32{1, int32(8 + random.IntN(10))}
	if err := e.Begin(prompt); err != nil {
		return err
	}
	for range 1 + random.IntN(6) {
		options := producers.GenerateOptions{MaxTokens: random.IntN(5)}
		switch random.IntN(3) {
		case 0:
			options.Stop = []int32{9, 10}
		case 1:
			options.StopTexts = []string{"?", "a ."}
		}
		if _, _, err := e.Generate(ctx, options); err != nil {
			return err
		}
		var err error
		switch random.IntN(3) {
		case 0:
			_, err = e.Call(ctx, "search", "sweden")
			if err == nil {
				err = e.Observe([]int32{5, int32(8 + random.IntN(10))})
			}
		case 1:
			err = e.Observe([]int32{4, int32(8 + random.IntN(10))})
		default:
			err = e.Begin(append(prompt, int32(8+random.IntN(10))))
		}
		if err != nil {
			return err
		}
	}
	e.Finish("", schemas.StopAnswer)
	return nil
}

// drawn is a policy whose tokens depend on its seed and on what it is shown alone.
func drawn(calls *int) policyFunc {
	return func(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		*calls++
		out := &generate.Result{Stop: schemas.GenerateLength}
		tokens := append([]int32(nil), r.Tokens...)
		for range min(r.MaxTokens, 6) {
			h := fnv.New64a()
			_ = binary.Write(h, binary.LittleEndian, append(tokens, int32(r.Seed)))
			next := 8 + int32(h.Sum64()%12)
			tokens = append(tokens, next)
			out.Tokens, out.Logprobs, out.Versions = append(out.Tokens, next), append(out.Logprobs, -float32(next)/8), append(out.Versions, int32(h.Sum64()%3))
			if slices.Contains(r.StopTokens, next) {
				out.Stop = schemas.GenerateStopToken
				return out, nil
			}
		}
		return out, nil
	}
}

// A fork at any turn of any episode that samples with the parent's own seed is the parent: nothing of it is lost or doubled on the way.
func TestPropertyAForkWithTheSameSeedIsItsParent(t *testing.T) {
	tok := newTokenizer(t)
	rapid.Check(t, func(r *rapid.T) {
		asked := 0
		env := newEnvironment(t, drawn(&asked))
		env.Agent, env.Tokenizer = agentFunc(wandering), tok
		ticket := newTicket(0)
		ticket.Seed = rapid.Uint64().Draw(r, "seed")
		ticket.Limits.MaxTokens = rapid.IntRange(3, 40).Draw(r, "max_tokens")
		ticket.Limits.MaxTotalTokens = rapid.SampledFrom([]int{0, 30, 80}).Draw(r, "max_total_tokens")
		parent, _, err := producers.Rollout(t.Context(), ticket, env)
		require.NoError(r, err)
		turns := rapid.IntRange(1, len(parent.Turns)).Draw(r, "turns")
		parent.ID = ticket.ID
		fork := forkOf(ticket, parent, turns)
		fork.Seed = ticket.Seed
		// It crosses the wire, as it does between a trainer and a producer.
		data, err := schemas.Marshal(fork)
		require.NoError(r, err)
		fork = new(schemas.Ticket)
		require.NoError(r, schemas.Unmarshal(data, fork))
		before := asked
		got, _, err := producers.Rollout(t.Context(), fork, env)
		require.NoError(r, err)
		require.Equal(r, &schemas.Forked{Parent: parent.ID, Turns: turns}, got.Forked)
		require.Equal(r, parent.Segments, got.Segments)
		require.Equal(r, parent.Stop, got.Stop)
		require.Len(r, got.Turns, len(parent.Turns))
		if turns == len(parent.Turns) {
			require.Equal(r, before, asked, "the policy is not asked")
		} else {
			require.Less(r, before, asked)
		}
	})
}

// A producer counts its forks, and cuts one off whose replayed tokens are too old for the run.
func TestAProducerCountsForksAndCutsOffOldOnes(t *testing.T) {
	ticket, parent := parentOf(t, rightLines, 3, 4, 5)
	for _, oldest := range []int64{3, 4} {
		t.Run(fmt.Sprint("oldest usable version ", oldest), func(t *testing.T) {
			s := newStream(forkOf(ticket, parent, 2))
			s.control <- &schemas.Control{Run: "r", PolicyVersion: 8, MinVersion: oldest, Eta: 4}
			asking := make(chan struct{})
			answer := &scripted{tok: newTokenizer(t), lines: []string{"<answer> helsinki </answer>"}, versions: []int32{8}}
			env := newEnvironment(t, policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
				if oldest == 4 {
					close(asking)
					<-ctx.Done()
				}
				return answer.Generate(ctx, r)
			}))
			m, err := producers.NewMetrics(prometheus.NewRegistry())
			require.NoError(t, err)
			p := startWith(t, config(), producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Metrics: m})
			<-s.idle
			p.stop()
			if oldest == 4 {
				require.Empty(t, s.published)
				require.Len(t, s.closed, 1)
				return
			}
			require.Len(t, s.published, 1)
			require.Equal(t, 2, s.published[0].Forked.Turns)
		})
	}
	registry := prometheus.NewRegistry()
	m, err := producers.NewMetrics(registry)
	require.NoError(t, err)
	diverging := forkOf(ticket, parent, 2)
	diverging.ID, diverging.Fork.Segments[0].Agent = "g0-0-2", "solver"
	s := newStream(forkOf(ticket, parent, 2), diverging)
	p := startWith(t, config(), producers.Deps{Stream: s, Metrics: m, Environments: map[string]producers.Environment{
		"t": newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines}),
	}})
	<-s.idle
	p.stop()
	n, err := testutil.GatherAndCount(registry, "weir_producer_forks_total")
	require.NoError(t, err)
	require.Equal(t, 2, n, "one whole, one diverged")
}
