package producers_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// piecemeal is a policy whose next token follows from all before it, so that a turn is the same however often it is cut off.
// cut may fail a call; nil never does.
type piecemeal struct {
	size int32
	cut  func(ctx context.Context, r *schemas.GenerateRequest) error
}

func (p *piecemeal) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	if p.cut != nil {
		err := p.cut(ctx, r)
		if part, ok := errors.AsType[*partError](err); ok && part.tokens > 0 {
			return p.sample(r, part.tokens), err
		}
		if err != nil {
			return nil, err
		}
	}
	return p.sample(r, r.MaxTokens), nil
}

// partError is why a call ended after so many tokens.
type partError struct {
	tokens int
	error
}

func (p *partError) Unwrap() error { return p.error }

func (p *piecemeal) sample(r *schemas.GenerateRequest, most int) *generate.Result {
	g := &generate.Result{Stop: schemas.GenerateLength}
	shown := slices.Clone([]int32(r.Tokens))
	for len(g.Tokens) < most {
		id := p.next(shown)
		shown = append(shown, id)
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, id), append(g.Logprobs, -1), append(g.Versions, 4)
		if slices.Contains(r.StopTokens, id) {
			g.Stop = schemas.GenerateStopToken
			break
		}
	}
	return g
}

func (p *piecemeal) next(shown []int32) int32 {
	h := uint64(len(shown))
	for _, id := range shown {
		h = schemas.MixSeed(h + uint64(id))
	}
	return int32(h % uint64(p.size))
}

// errCutOff is a cause that is not the episode's time limit.
var errCutOff = errors.New("the client left, or the engine failed")

// Finding A9 of the second attack: half a turn of a client that left stayed in the context and was trained on.
//
// Invariant: a turn is recorded as it was given to the agent, whole, or not at all. The exceptions are the turn in which the episode's
// time limit passes, and the first of an episode that ends without a whole one.
func TestInvariantATurnIsRecordedWholeOrNotAtAll(t *testing.T) {
	tok := pieces{"a", "b", "`", "``", "```", "\n", "``\n", "x`y"}
	type entry struct {
		token int32
		mask  uint8
	}
	rapid.Check(t, func(rt *rapid.T) {
		draws := func(name string) bool { return rapid.IntRange(0, 2).Draw(rt, name) == 0 }
		var model [][]entry // what the agent put there and was given
		var leave context.CancelCauseFunc
		policy := &piecemeal{size: int32(len(tok)), cut: func(ctx context.Context, r *schemas.GenerateRequest) error {
			said := model[len(model)-1]
			require.GreaterOrEqual(rt, len(r.Tokens), len(said))
			for i, e := range said {
				require.Equal(rt, e.token, r.Tokens[i], "the policy is shown the context that the agent knows")
			}
			switch {
			case draws("the engine fails"):
				return errCutOff
			case draws("the client leaves"):
				leave(errCutOff)
				return context.Cause(ctx)
			}
			return nil
		}}
		given := func(ids []int32) (out []entry) {
			for _, id := range ids {
				out = append(out, entry{id, 0})
			}
			return out
		}
		turns := 0
		env := newEnvironment(t, policy)
		env.Tokenizer = tok
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			model = append(model, given([]int32{0}))
			if err := e.Begin([]int32{0}); err != nil {
				return err
			}
			options := producers.GenerateOptions{StopTexts: []string{"```\n"}}
			for range rapid.IntRange(1, 15).Draw(rt, "acts") {
				last := &model[len(model)-1]
				switch rapid.IntRange(0, 7).Draw(rt, "act") {
				case 0:
					ids := []int32{1, 2}
					if err := e.Observe(ids); err != nil {
						return err
					}
					*last = append(*last, given(ids)...)
				case 1:
					ids := []int32{3}
					if err := e.Begin(ids); err != nil {
						return err
					}
					model = append(model, given(ids))
				case 2:
					options.MaxTokens = rapid.IntRange(0, 6).Draw(rt, "most")
				case 3:
					options.StopTexts = rapid.SampledFrom([][]string{{"```\n"}, {"``"}, {"b", "```\n"}, nil}).Draw(rt, "stops")
				default:
					var asking context.Context
					asking, leave = context.WithCancelCause(ctx)
					sampled, _, err := e.Generate(asking, options)
					leave(nil)
					if err != nil && !errors.Is(err, errCutOff) {
						return err
					}
					require.Equal(rt, err != nil, len(sampled) == 0)
					if options.MaxTokens > 0 {
						require.LessOrEqual(rt, len(sampled), options.MaxTokens)
					}
					for _, id := range sampled {
						*last = append(*last, entry{id, 1})
					}
					turns += min(len(sampled), 1)
				}
				total := 0
				for _, segment := range model {
					total += len(segment)
				}
				require.Equal(rt, max(0, min(e.Limits().MaxTokens-len(model[len(model)-1]), e.Limits().MaxTotalTokens-total)), e.Room(),
					"what was cut off takes no room")
			}
			e.Finish("", schemas.StopAnswer)
			return nil
		})
		ticket := newTicket(0)
		ticket.Limits.MaxTokens, ticket.Limits.MaxTotalTokens = rapid.IntRange(6, 30).Draw(rt, "tokens"), rapid.IntRange(6, 60).Draw(rt, "in all")
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		if turns == 0 && err == nil { // what was begun of the first turn stands in for it
			require.Len(rt, trajectory.Turns, 1)
			require.Less(rt, trajectory.Turns[0].Start, trajectory.Turns[0].End)
			require.Len(rt, trajectory.Segments[trajectory.Turns[0].Segment].Tokens, trajectory.Turns[0].End)
			return
		}
		if turns == 0 {
			return
		}
		require.NoError(rt, err)
		require.Len(rt, trajectory.Turns, turns)
		require.Len(rt, trajectory.Segments, len(model))
		for i, want := range model {
			var got []entry
			for k, id := range trajectory.Segments[i].Tokens {
				got = append(got, entry{id, trajectory.Segments[i].ActionMask[k]})
			}
			require.Equal(rt, want, got)
		}
	})
}

// A turn that was cut off between two pieces goes on when the agent asks again, and is the turn that it would have been: turns are not
// drawn again until they are short enough for a client's patience.
func TestATurnThatWasCutOffGoesOn(t *testing.T) {
	tok := pieces{"a", "b", "`", "``", "```", "\n", "``\n", "x`y"}
	said := func(patience int) (out []int32, began []int) {
		calls := 0
		env := newEnvironment(t, &piecemeal{size: int32(len(tok)), cut: func(_ context.Context, r *schemas.GenerateRequest) error {
			began = append(began, len(r.Tokens))
			if calls++; calls%patience == 0 {
				return errCutOff
			}
			return nil
		}})
		env.Tokenizer = tok
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.NoError(t, e.Begin([]int32{0}))
			for {
				sampled, _, err := e.Generate(ctx, producers.GenerateOptions{StopTexts: []string{"b`b`"}, MaxTokens: 40})
				if !errors.Is(err, errCutOff) {
					out = sampled
					return err
				}
			}
		})
		ticket := newTicket(0)
		ticket.Limits.MaxTokens = 100
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		require.NoError(t, err)
		require.Len(t, trajectory.Turns, 1)
		require.Equal(t, out, []int32(trajectory.Segments[0].Tokens[1:]))
		return out, slices.Compact(began)
	}
	whole, began := said(1000)
	require.Greater(t, len(began), 3, "it comes in pieces")
	cut, again := said(2)
	require.Equal(t, whole, cut)
	require.Equal(t, began, again, "no piece is drawn twice")
}

// An episode whose time passes within a turn ends with what was said until then: a policy that never comes to an end is not left out of
// what is trained on.
func TestTheTimeLimitWithinATurnKeepsWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := pieces{"a", "`", "b"}
		calls := 0
		env := newEnvironment(t, policyFunc(func(ctx context.Context, _ *schemas.GenerateRequest) (*generate.Result, error) {
			if calls++; calls > 2 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return &generate.Result{Tokens: []int32{0, 1}, Logprobs: []float32{-1, -1}, Versions: []int32{4, 4}, Stop: schemas.GenerateStopToken}, nil
		}))
		env.Tokenizer = tok
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.NoError(t, e.Begin([]int32{2}))
			_, _, err := e.Generate(ctx, producers.GenerateOptions{StopTexts: []string{"b`"}})
			return err
		})
		ticket := newTicket(0)
		ticket.Limits.Timeout = time.Second
		trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, schemas.StopTimeout, trajectory.Stop)
		require.Equal(t, []int32{2, 0, 1, 0, 1}, []int32(trajectory.Segments[0].Tokens))
		require.Equal(t, []uint8{0, 1, 1, 1, 1}, []uint8(trajectory.Segments[0].ActionMask))
		require.Len(t, trajectory.Turns, 1)
	})
}

// The list of ways out of training: a policy that is still at its first turn when the episode's time passes, or when its client leaves for
// good, is trained on what it said until then. One that no engine served is not.
func TestAFirstTurnThatOutlastsItsEpisodeIsTrainedOn(t *testing.T) {
	talking := func(ctx context.Context, _ *schemas.GenerateRequest) (*generate.Result, error) {
		<-ctx.Done()
		return &generate.Result{Tokens: []int32{3, 4}, Logprobs: []float32{-1, -2}, Versions: []int32{4, 5}}, context.Cause(ctx)
	}
	for name, tc := range map[string]struct {
		policy policyFunc
		agent  func(ctx context.Context, e *producers.Episode) error
		want   schemas.StopReason // "" is a ticket that goes back
	}{
		"the time passes": {talking, func(ctx context.Context, e *producers.Episode) error {
			_, _, err := e.Generate(ctx, producers.GenerateOptions{})
			return err
		}, schemas.StopTimeout},
		"its client leaves, then the time passes": {talking, func(ctx context.Context, e *producers.Episode) error {
			asking, leave := context.WithTimeout(ctx, time.Second)
			defer leave()
			_, _, err := e.Generate(asking, producers.GenerateOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			<-ctx.Done()
			return context.Cause(ctx)
		}, schemas.StopTimeout},
		"its client leaves, and has no answer": {talking, func(ctx context.Context, e *producers.Episode) error {
			asking, leave := context.WithTimeout(ctx, time.Second)
			defer leave()
			_, _, err := e.Generate(asking, producers.GenerateOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return nil
		}, schemas.StopFormat},
		"no engine serves it": {func(ctx context.Context, _ *schemas.GenerateRequest) (*generate.Result, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, func(ctx context.Context, e *producers.Episode) error {
			_, _, err := e.Generate(ctx, producers.GenerateOptions{})
			return err
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := newEnvironment(t, tc.policy)
				env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
					require.NoError(t, e.Begin([]int32{2}))
					return tc.agent(ctx, e)
				})
				ticket := newTicket(0)
				ticket.Limits.Timeout = time.Minute
				trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
				if tc.want == "" {
					require.True(t, producers.Unserved(err), err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.want, trajectory.Stop)
				require.Len(t, trajectory.Turns, 1)
				s := trajectory.Segments[0]
				require.Equal(t, []int32{2, 3, 4}, []int32(s.Tokens))
				require.Equal(t, []uint8{0, 1, 1}, []uint8(s.ActionMask))
				require.Equal(t, []float32{0, -1, -2}, []float32(s.Logprobs))
			})
		})
	}
}

// Between two pieces of a turn another context may take the room that is left, or end the episode.
func TestAnotherContextBetweenTwoPieces(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*producers.Context) error
		want      []int32
		fails     schemas.StopReason
	}{
		"takes the room":   {func(c *producers.Context) error { return c.Observe(make([]int32, c.Room())) }, []int32{2, 0, 1}, ""},
		"ends the episode": {func(c *producers.Context) error { _, err := c.Call(t.Context(), "end", ""); return err }, []int32{2}, schemas.StopTool},
	} {
		t.Run(name, func(t *testing.T) {
			var other *producers.Context
			calls := 0
			env := newEnvironment(t, policyFunc(func(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
				if calls++; calls == 2 {
					return &generate.Result{Tokens: []int32{0, 1}, Logprobs: []float32{-1, -1}, Versions: []int32{4, 4}, Stop: schemas.GenerateStopToken}, nil
				}
				return one(t.Context(), nil)
			}))
			tok := &meddling{pieces: pieces{"a", "`", "b", "c", "d", "e", "f", "g"}}
			env.Tokenizer = tok
			env.Tools = []producers.Tool{calling{"end", func(context.Context, producers.Call) (producers.Observation, error) {
				return producers.Observation{Done: true}, nil
			}}}
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				var err error
				if other, err = e.Open("", []int32{0}); err != nil {
					return err
				}
				_, _, err = other.Generate(ctx, producers.GenerateOptions{})
				require.NoError(t, err)
				c, err := e.Open("", []int32{2})
				require.NoError(t, err)
				tok.meanwhile = func() { require.NoError(t, tc.meanwhile(other)) }
				sampled, stop, err := c.Generate(ctx, producers.GenerateOptions{StopTexts: []string{"b`"}})
				if tc.fails != "" {
					var stopped *producers.StoppedError
					require.ErrorAs(t, err, &stopped)
					require.Equal(t, tc.fails, stopped.Reason)
					return err
				}
				require.NoError(t, err)
				require.Equal(t, []int32{0, 1}, sampled)
				require.Equal(t, schemas.GenerateLength, stop)
				return nil
			})
			ticket := newTicket(0)
			ticket.Limits.MaxTokens, ticket.Limits.MaxTotalTokens = 50, 20
			trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
			require.NoError(t, err)
			require.Equal(t, tc.want, []int32(trajectory.Segments[1].Tokens))
		})
	}
}

// meddling is a tokenizer that lets something happen where the policy's pieces are looked at for stop texts.
type meddling struct {
	pieces
	meanwhile func()
}

func (m *meddling) Decode(ids []int32) string {
	if do := m.meanwhile; do != nil && len(ids) == 2 {
		m.meanwhile = nil
		do()
	}
	return m.pieces.Decode(ids)
}
