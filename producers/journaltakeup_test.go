package producers_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// indexed notes the index of each call.
type indexed struct {
	mu   sync.Mutex
	seen map[int][]string
}

func (t *indexed) Spec() producers.ToolSpec   { return producers.ToolSpec{Name: "look"} }
func (t *indexed) Effects() producers.Effects { return producers.EffectsNone }
func (t *indexed) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	t.mu.Lock()
	t.seen[c.Index] = append(t.seen[c.Index], c.Arguments)
	t.mu.Unlock()
	if c.Arguments == "slow" {
		select {
		case <-time.After(30 * time.Second):
		case <-ctx.Done():
			return producers.Observation{}, ctx.Err()
		}
	}
	return producers.Observation{Text: c.Arguments}, nil
}

// A producer dies when one of two calls that were made at once is recorded: each call keeps its index.
func TestCallsKeepTheirIndexesWhenAnEpisodeIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		tool := &indexed{seen: map[int][]string{}}
		env := newEnvironment(t, newSeeded(100*time.Millisecond))
		env.Tools = []producers.Tool{tool}
		env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			if err := e.Begin([]int32{1, 2, 3}); err != nil {
				return err
			}
			for n, calls := range [][]producers.ToolCall{
				{{Name: "look", Arguments: "quick"}, {Name: "look", Arguments: "slow"}}, {{Name: "look", Arguments: "last"}},
			} {
				if _, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: []int32{stopToken}, MaxTokens: 3}); err != nil {
					return err
				}
				if _, err := e.Calls(ctx, calls); err != nil {
					return err
				}
				if err := e.Observe([]int32{int32(7 + n)}); err != nil {
					return err
				}
			}
			e.Finish("x", schemas.StopAnswer)
			return nil
		})
		led := newLedger(newStream())
		led.left = 1
		l := led.offer(ticket, 1)
		p := startWith(t, journalConfig("p1", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-time.After(10 * time.Second)
		l.lose()
		p.stop()
		require.Equal(t, map[int][]string{0: {"quick"}, 1: {"slow"}}, tool.seen)
		tool.seen = map[int][]string{}
		led.offer(ticket, 2)
		p = startWith(t, journalConfig("p2", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-led.idle
		p.stop()
		require.Equal(t, map[int][]string{1: {"slow"}, 2: {"last"}}, tool.seen)
	})
}

// The tickets were lost and issued anew, so that deliveries count from 1, and a journal has a later delivery: the ticket goes back.
func TestATicketThatWasIssuedAnewGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		env := journalEnvironment(t, newSeeded(300*time.Millisecond), 5, newCounted("look", producers.EffectsNone, time.Second))
		led := newLedger(newStream())
		led.left = 1
		r := &schemas.JournalRecord{Run: ticket.Run, Ticket: ticket.ID, Basis: schemas.JournalBasis(ticket), Producer: "p0", Delivery: 2}
		data, err := schemas.Marshal(r)
		require.NoError(t, err)
		led.records[ticket.ID], led.next = []stored{{7, data}}, 7
		led.offer(ticket, 1)
		p := startWith(t, journalConfig("p1", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-time.After(time.Minute)
		p.stop()
		require.NotEmpty(t, led.returned)
	})
}

// away has a broker that does not answer a Replace.
type away struct {
	*ledger
	asked chan<- struct{}
}

func (a away) OpenJournal(t *schemas.Ticket) producers.JournalStore {
	return awayPages{&pages{ledger: a.ledger, ticket: t.ID}, a.asked}
}

type awayPages struct {
	*pages
	asked chan<- struct{}
}

func (a awayPages) Replace(ctx context.Context, _ *schemas.JournalRecord) error {
	select {
	case a.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAProducerStopsThoughItsJournalIsNotWritten(t *testing.T) {
	t.Parallel()
	ticket := journalTicket(secondSeed)
	env := journalEnvironment(t, newSeeded(300*time.Millisecond), 50, newCounted("look", producers.EffectsNone, time.Second))
	led := newLedger(newStream())
	led.left = 1
	r := &schemas.JournalRecord{Run: ticket.Run, Ticket: ticket.ID, Basis: schemas.JournalBasis(ticket), Producer: "p0", Delivery: 1}
	data, err := schemas.Marshal(r)
	require.NoError(t, err)
	led.records[ticket.ID], led.next = []stored{{7, data}}, 7
	led.offer(ticket, 1)
	cfg := journalConfig("p1", producers.JournalOn)
	cfg.Grace, cfg.Settle = 200*time.Millisecond, 200*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done, asked := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		done <- producers.Run(ctx, cfg, producers.Deps{Stream: away{led, asked}, Environments: map[string]producers.Environment{"t": env}})
	}()
	<-asked
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "it has not ended")
	}
}

// A producer dies while a slow reward scores, after the time limit: the next producer has time to give back what is recorded.
func TestAnEpisodePastItsTimeLimitIsTakenUpWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		ticket.Limits.Timeout = 10 * time.Second
		tool := newCounted("look", producers.EffectsNone, 0)
		build := func() producers.Environment {
			env := journalEnvironment(t, newSeeded(300*time.Millisecond), 30, tool)
			env.Reward = slowReward{}
			return env
		}
		want := undisturbed(t, ticket, build())
		led := newLedger(newStream())
		led.left = 1
		l := led.offer(ticket, 1)
		p := startWith(t, journalConfig("p1", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": build()}})
		<-time.After(13 * time.Second)
		l.lose()
		p.stop()
		led.offer(ticket, 2)
		p = startWith(t, journalConfig("p2", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": build()}})
		<-led.idle
		p.stop()
		got := led.published[0]
		require.GreaterOrEqual(t, got.ActionTokens(), want.ActionTokens())
		require.Empty(t, led.returned)
	})
}

type slowReward struct{}

func (slowReward) Score(ctx context.Context, _ *schemas.Ticket, _ *producers.Transcript) (producers.Score, error) {
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
		return producers.Score{}, ctx.Err()
	}
	return producers.Score{Total: 1}, nil
}
