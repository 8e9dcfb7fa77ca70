package producers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
)

// kept is a tool that keeps sessions and says what is done to it, in order.
type kept struct {
	name      string
	open      func(producers.Session) error
	close     func(context.Context) error
	call      func(producers.Call) (producers.Observation, error)
	workspace producers.Workspace

	mu       sync.Mutex
	acts     []string
	sessions []producers.Session
}

func (k *kept) act(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acts = append(k.acts, what)
}

func (k *kept) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.acts)
}

func (k *kept) Spec() producers.ToolSpec { return producers.ToolSpec{Name: k.name} }

func (k *kept) Open(_ context.Context, s producers.Session) error {
	k.act("open " + s.Episode)
	k.mu.Lock()
	k.sessions = append(k.sessions, s)
	k.mu.Unlock()
	if k.open != nil {
		return k.open(s)
	}
	return nil
}

func (k *kept) Close(ctx context.Context, episode string) error {
	k.act("close " + episode)
	if k.close != nil {
		return k.close(ctx)
	}
	return nil
}

func (k *kept) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	k.act("call " + c.Arguments)
	if k.call != nil {
		return k.call(c)
	}
	return producers.Observation{Text: "sweden"}, nil
}

func (k *kept) Workspace(string) (producers.Workspace, bool) { return k.workspace, k.workspace != nil }

type room struct{ producers.Workspace }

// scored is a reward that is one function of the transcript.
type scored func(*producers.Transcript) producers.Score

func (f scored) Score(_ context.Context, _ *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	return f(t), nil
}

// A session is open from before the agent to after the score, knows the prompt's world and not its answers, and the reward can
// look into its workspace.
func TestSessionsAreOpenFromBeforeTheAgentToAfterTheScore(t *testing.T) {
	tool := &kept{name: "search", workspace: room{}}
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	env.Tools = []producers.Tool{tool}
	inner := env.Agent
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		tool.act("agent")
		require.Nil(t, e.Prompt().World)
		require.Nil(t, e.Prompt().Hidden)
		return inner.Run(ctx, e)
	})
	env.Reward = scored(func(tr *producers.Transcript) producers.Score {
		tool.act("score")
		require.Equal(t, room{}, tr.Workspace)
		return producers.Score{}
	})
	ticket := newTicket(0)
	ticket.Prompt.World, ticket.Prompt.Hidden = json.RawMessage(`{"rows":3}`), json.RawMessage(`"secret"`)
	_, transcript, err := producers.Rollout(context.Background(), ticket, env)
	require.NoError(t, err)
	require.Nil(t, transcript.Workspace)
	require.Equal(t, []string{"open g0-0-0", "agent", "call sweden", "call finland", "score", "close g0-0-0"}, tool.did())
	require.Equal(t, []producers.Session{{
		Run: "r", Episode: "g0-0-0", Task: "t", Source: "2n", Seed: 42, World: json.RawMessage(`{"rows":3}`),
	}}, tool.sessions)

	ticket.Limits.MaxTurns = 0 // no tool may be called: none is opened
	env.Agent, env.Policy = inner, &scripted{tok: newTokenizer(t), lines: []string{"helsinki </answer>"}}
	env.Reward = scored(func(*producers.Transcript) producers.Score { return producers.Score{} })
	_, _, err = producers.Rollout(context.Background(), ticket, env)
	require.NoError(t, err)
	require.Len(t, tool.did(), 6)
}

// What fails to open, or panics, is the machinery's; what had opened is closed, and the agent does not run.
func TestAToolThatCannotOpenReturnsTheTicket(t *testing.T) {
	for name, open := range map[string]func(producers.Session) error{
		"error": func(producers.Session) error { return errors.New("no sandbox is left") },
		"panic": func(producers.Session) error { panic("no sandbox is left") },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := &kept{name: "first"}, &kept{name: "second", open: open}
			env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
			env.Tools = []producers.Tool{first, second}
			env.Agent = agentFunc(func(context.Context, *producers.Episode) error { panic("it has no tools") })
			_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
			require.ErrorIs(t, err, producers.ErrUnavailable)
			require.ErrorContains(t, err, "tool second")
			require.ErrorContains(t, err, "no sandbox is left")
			require.Equal(t, []string{"open g0-0-0", "close g0-0-0"}, first.did())
			require.Equal(t, []string{"open g0-0-0"}, second.did())
		})
	}
}

// A session that does not close holds up no ticket, neither does it hold up the end of the producer for longer than the limit, and
// it is counted.
func TestASessionThatDoesNotCloseIsCountedAndHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics, err := producers.NewMetrics(registry)
		require.NoError(t, err)
		release := make(chan struct{})
		tool := &kept{name: "search", close: func(context.Context) error { <-release; return nil }}
		env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
		env.Tools = []producers.Tool{tool}
		s := newStream(newTicket(0), newTicket(1))
		p := startWith(t, config(), producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics})
		<-s.idle // both tickets are done although no session has closed
		p.stop()
		families, err := registry.Gather()
		require.NoError(t, err)
		require.NotEmpty(t, families)
		n, err := testutil.GatherAndCount(registry, "weir_producer_sessions_unclosed_total")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for _, f := range families {
			if f.GetName() == "weir_producer_sessions_unclosed_total" {
				require.InDelta(t, 2, f.GetMetric()[0].GetCounter().GetValue(), 0)
			}
		}
		close(release)
	})
}

// A ticket that comes again waits until the session of its earlier episode is closed: the two have one name.
func TestATicketThatComesAgainWaitsForItsEarlierSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		closes := 0
		tool := &kept{name: "search"}
		tool.close = func(context.Context) error {
			if closes++; closes == 1 {
				<-release
			}
			return nil
		}
		env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: slices.Concat(rightLines, rightLines)})
		env.Tools = []producers.Tool{tool}
		s := newStream(newTicket(0))
		s.failDone = 1 // the ticket is delivered once more
		p := start(t, config(), s, env)
		synctest.Wait()
		require.Equal(t, []string{"open g0-0-0", "call sweden", "call finland", "close g0-0-0"}, tool.did())
		close(release)
		<-s.idle
		p.stop()
		require.Equal(t, []string{"open g0-0-0", "call sweden", "call finland", "close g0-0-0"}, tool.did()[4:])
	})
}

// Finding R1 of a review: the same holds for a second producer of the process, which has the same tools.
func TestATicketThatComesToAnotherProducerOfTheProcessWaitsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tool := &kept{name: "search", close: func(context.Context) error { <-release; return nil }}
		env := newEnvironment(t, policyFunc(one))
		env.Tools = []producers.Tool{tool}
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			if err := e.Begin([]int32{1}); err != nil {
				return err
			}
			if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
				return err
			}
			e.Finish("x", "answer")
			return nil
		})
		s := newStream(newTicket(0))
		s.failDone = 1 // the ticket is delivered once more
		cfg, claims := config(), new(producers.Claims)
		cfg.Concurrency = 1
		deps := producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Claims: claims}
		p, q := startWith(t, cfg, deps), startWith(t, cfg, deps)
		synctest.Wait()
		opened := func() int {
			return len(slices.DeleteFunc(tool.did(), func(did string) bool { return !strings.HasPrefix(did, "open") }))
		}
		require.Equal(t, 1, opened(), "the session of the earlier episode is not closed")
		close(release)
		<-s.idle
		p.stop()
		q.stop()
		require.Equal(t, 2, opened())
	})
}

// A tool that returns an answer ends the episode with it, whatever the agent makes of that.
func TestAToolCanAnswer(t *testing.T) {
	answer := "helsinki"
	tool := &kept{name: "search", call: func(producers.Call) (producers.Observation, error) {
		return producers.Observation{Text: "thank you", Answer: &answer, Outputs: 1, Errors: 2, Metrics: map[string]float64{"cells": 3}}, nil
	}}
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	env.Tools = []producers.Tool{tool}
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		require.NoError(t, e.Begin([]int32{1}))
		_, _, err := e.Generate(ctx, producers.GenerateOptions{})
		require.NoError(t, err)
		observation, err := e.Call(ctx, "search", "x")
		require.NoError(t, err)
		require.True(t, observation.Done)
		var stopped *producers.StoppedError
		_, _, err = e.Generate(ctx, producers.GenerateOptions{})
		require.ErrorAs(t, err, &stopped)
		_, err = e.Call(ctx, "search", "x")
		require.ErrorAs(t, err, &stopped)
		e.Finish("stockholm", schemas.StopAnswer)
		return nil
	})
	trajectory, transcript, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.NoError(t, err)
	require.Equal(t, "helsinki", trajectory.Answer)
	require.Equal(t, schemas.StopAnswer, trajectory.Stop)
	require.Len(t, trajectory.Turns, 1)
	require.Equal(t, 1, transcript.Turns[0].Outputs)
	require.Equal(t, 2, transcript.Turns[0].Errors)
	require.Equal(t, map[string]float64{"cells": 3}, transcript.Metrics)
}

// A prompt that gives a tool nothing to work on is not tried again: its sample is closed at once with the reason, and its ticket is done.
func TestAPromptAtFaultClosesItsSampleAtOnce(t *testing.T) {
	tool := &kept{name: "sql", open: func(producers.Session) error {
		return fmt.Errorf("%w: world.script: there is no database", producers.ErrPrompt)
	}}
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	env.Tools = []producers.Tool{tool}
	s := newStream(newTicket(3))
	p := start(t, config(), s, env)
	<-s.idle
	p.stop()
	require.Empty(t, s.published)
	require.Empty(t, s.returned)
	require.Len(t, s.closed, 1)
	require.Equal(t, "prompt p: open a session of tool sql: the prompt's data are at fault: world.script: there is no database", s.closed[0].Why)
	require.Equal(t, []string{"g3-0-0"}, s.done)
	require.Equal(t, []string{"open g3-0-0"}, tool.did())
}

// confidant is a tool that is told what agents are not.
type confidant struct {
	*kept
	secret producers.Secret
}

func (c *confidant) OpenTold(ctx context.Context, s producers.Session, secret producers.Secret) error {
	c.secret = secret
	return c.Open(ctx, s)
}

// Of two tools the one that asks to be told is told the answers, and no other.
func TestOnlyAConfidantIsToldTheAnswers(t *testing.T) {
	told, other := &confidant{kept: &kept{name: "search"}}, &kept{name: "other"}
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	env.Tools = []producers.Tool{tools.Within(told, time.Minute), tools.Within(other, time.Minute)}
	ticket := newTicket(7)
	ticket.PolicyVersion = 5
	_, _, err := producers.Rollout(t.Context(), ticket, env)
	require.NoError(t, err)
	require.Equal(t, producers.Secret{Question: ticket.Prompt.Text, Answers: []string{"Helsinki"}, Cursor: 7, PolicyVersion: 5}, told.secret)
	for _, s := range append(told.sessions, other.sessions...) {
		require.NotContains(t, fmt.Sprintf("%+v", s), "Helsinki")
	}
	require.Len(t, other.sessions, 1)
}
