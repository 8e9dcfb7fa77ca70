package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// noting is an agent that notes each of its turns, and stores it.
type noting struct {
	turns, words int

	mu      sync.Mutex
	found   []string // what each producer found
	noted   []string
	refused []error
	secrets []string
}

func (a *noting) Stay(ctx context.Context, secret []byte, goesOn func(context.Context, string) (bool, error)) error {
	if on, err := goesOn(ctx, "g.0"); on || err != nil {
		return fmt.Errorf("goes on %t: %w", on, err)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets = append(a.secrets, string(secret))
	return errors.New("the address is another's")
}

func (a *noting) Run(ctx context.Context, e *producers.Episode) error {
	had := e.Notes()
	a.mu.Lock()
	a.found = append(a.found, fmt.Sprintf("%s", had))
	a.mu.Unlock()
	if err := e.Begin([]int32{1, 2, 3}); err != nil {
		return err
	}
	for turn := range a.turns {
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: []int32{stopToken}, MaxTokens: 6}); err != nil {
			return err
		}
		if turn >= len(had) && e.HasJournal() {
			note := fmt.Sprintf("turn %d%s", turn, strings.Repeat(" and so on", a.words))
			e.Note([]byte(note))
			err := e.StoreNotes(ctx)
			a.mu.Lock()
			if err != nil {
				a.refused = append(a.refused, err)
			} else {
				a.noted = append(a.noted, note)
			}
			a.mu.Unlock()
			if err != nil {
				return err
			}
		}
		if err := e.Observe([]int32{int32(6 + turn%10)}); err != nil {
			return err
		}
	}
	e.Finish("home", schemas.StopAnswer)
	return nil
}

func newNotingEnvironment(t *testing.T, agent *noting) producers.Environment {
	t.Helper()
	env := newEnvironment(t, newSeeded(150*time.Millisecond))
	env.Agent = agent
	env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
	return env
}

// What an agent has noted and stored comes to each later producer, in order, and with it what the policy had said: of an answer that is noted
// no token is sampled again.
func TestNotesComeToTheNextProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, ticket := &noting{turns: 9}, journalTicket(secondSeed)
		env := newNotingEnvironment(t, agent)
		want := undisturbed(t, ticket, env)
		require.Empty(t, agent.noted, "nothing is noted without a journal")
		led, deaths := runKilled(t, ticket, env, producers.JournalOn, nil, func(n int) bool { return n%3 == 0 })
		require.Greater(t, deaths, 1)
		require.Equal(t, plainTrajectory(want), plainTrajectory(led.published[0]))
		for _, found := range agent.found {
			require.True(t, strings.HasPrefix("[turn 0 turn 1 turn 2 turn 3 turn 4 turn 5 turn 6 turn 7 turn 8]", strings.TrimSuffix(found, "]")), found)
		}
		for i := 1; i < len(agent.found); i++ {
			require.LessOrEqual(t, len(agent.found[i-1]), len(agent.found[i]))
		}
		require.Greater(t, len(agent.found[len(agent.found)-1]), len("[turn 0]"))
	})
}

// A producer that does not know that another has its ticket is refused where its agent would be told of an answer.
func TestNotesAreRefusedWhereAnotherProducerHasTheEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, ticket := &noting{turns: 12}, journalTicket(secondSeed)
		env := newNotingEnvironment(t, agent)
		led := newLedger(newStream())
		led.left = 1
		led.offer(ticket, 1)
		deps := producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}}
		cfg := journalConfig("p1", producers.JournalOn)
		cfg.Journal.Every = time.Hour // nothing is written but what the agent stores
		first := startWith(t, cfg, deps)
		<-time.After(2500 * time.Millisecond)
		led.offer(ticket, 2) // the first producer does not hear that its lease has lapsed
		second := startWith(t, journalConfig("p2", producers.JournalOn), deps)
		<-led.idle
		second.stop()
		first.stop()
		require.NotEmpty(t, agent.refused)
		require.Len(t, agent.noted, 12, "each turn was noted once")
		require.Len(t, led.published, 1)
		require.Equal(t, "p2", led.published[0].Producer)
	})
}

// An episode whose notes are beyond the journal's bound goes on; what was stored is withdrawn, so that no producer takes a part for all.
func TestNotesBeyondTheBoundAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, ticket := &noting{turns: 12, words: 40}, journalTicket(secondSeed)
		env := newNotingEnvironment(t, agent)
		led := newLedger(newStream())
		led.left = 1
		lease := led.offer(ticket, 1)
		cfg := journalConfig("p1", producers.JournalOn)
		cfg.Journal.MaxBytes = 4096
		withdrawn := make(chan struct{})
		led.seen = func(r *schemas.JournalRecord, n int) {
			if r.Number == 0 && n > 1 { // an empty record in the place of all
				close(withdrawn)
				lease.lose()
			}
		}
		first := startWith(t, cfg, producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-withdrawn
		first.stop()
		require.Less(t, len(agent.noted), 12, "it was withdrawn in the middle of the episode")
		require.Len(t, led.records[ticket.ID], 1)
		led.seen = nil
		led.offer(ticket, 2)
		second := startWith(t, journalConfig("p2", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-led.idle
		second.stop()
		require.Equal(t, []string{"[]", "[]"}, agent.found)
		require.Len(t, led.published, 1)
	})
}

// sharing is a stream whose producers share a secret.
type sharing struct{ *ledger }

func (sharing) JournalGoesOn(context.Context, string) (bool, error) { return false, nil }

func (sharing) AgentSecret(context.Context) ([]byte, error) { return []byte("secret"), nil }

// An agent whose programs may outlive its producer is told the secret before the first episode, where episodes have journals. Where it cannot
// be reached the producer works on.
func TestAgentsThatLastAreToldTheSecret(t *testing.T) {
	for mode, want := range map[string][]string{producers.JournalOn: {"secret"}, producers.JournalAuto: {"secret"}, producers.JournalOff: nil} {
		synctest.Test(t, func(t *testing.T) {
			agent := &noting{turns: 2}
			led := newLedger(newStream())
			led.left = 1
			led.offer(journalTicket(secondSeed), 1)
			p := startWith(t, journalConfig("p1", mode), producers.Deps{
				Stream: sharing{led}, Environments: map[string]producers.Environment{"t": newNotingEnvironment(t, agent)},
			})
			<-led.idle
			p.stop()
			require.Equal(t, want, agent.secrets)
			require.Len(t, led.published, 1)
		})
	}
}
