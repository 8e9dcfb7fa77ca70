package producers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Invariant: a ticket that comes again after its trajectory was stored calls no tool again.
//
// The broker was killed before it had written the acknowledgement down, and the episode was played again with all its calls.
func TestInvariantATicketWhoseEpisodeIsOverCallsNothingAgain(t *testing.T) {
	for _, delivery := range []int{1, 2, 9} { // a broker that was killed may have lost the deliveries too
		synctest.Test(t, func(t *testing.T) {
			ticket, tool := journalTicket(secondSeed), newCounted("pay", producers.EffectsOutside, time.Second)
			env := journalEnvironment(t, newSeeded(100*time.Millisecond), 6, tool)
			led, _ := runKilled(t, ticket, env, producers.JournalOn, nil, func(int) bool { return false })
			require.Len(t, led.published, 1)
			require.NotEmpty(t, tool.calls)
			called := tool.count()
			led.left, led.idle = 1, make(chan struct{})
			led.offer(ticket, delivery)
			p := startWith(t, journalConfig("again", producers.JournalOn), depsOn(led, env))
			<-led.idle
			p.stop()
			require.Equal(t, called, tool.count())
			require.Len(t, led.published, 1)
			require.Empty(t, led.closed)
			require.Empty(t, led.returned)
		})
	}
}

// depsOn are the dependencies of a producer that keeps its journals in a ledger.
func depsOn(led *ledger, env producers.Environment) producers.Deps {
	return producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}}
}

// count is how many calls were made.
func (t *counted) count() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, made := range t.calls {
		n += made
	}
	return n
}

// Invariant: a tool that changes something outside is called once though the broker has lost how often it delivered the ticket.
//
// Such a ticket came as if for the first time, its journal was given up, and the calls were made again.
func TestInvariantLostDeliveriesMakeNoCallAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed, turns := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 6).Draw(rt, "turns")
		kills := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 6).Draw(rt, "kills")
		mode := rapid.SampledFrom([]string{producers.JournalOn, producers.JournalAuto}).Draw(rt, "mode")
		synctest.Test(t, func(t *testing.T) {
			ticket := journalTicket(seed)
			build := func() (producers.Environment, *counted) {
				pay := newCounted("pay", producers.EffectsOutside, 700*time.Millisecond)
				look := newCounted("look", producers.EffectsNone, time.Second)
				return journalEnvironment(t, newSeeded(150*time.Millisecond), turns, look, pay), pay
			}
			env, _ := build()
			want := undisturbed(t, ticket, env)
			env, pay := build()
			kept := newLedger(newStream())
			kept.left = 1
			for life := 1; ; life++ {
				lease := kept.offer(ticket, 1)
				kept.seen = func(r *schemas.JournalRecord, n int) {
					if slices.Contains(kills, n) && r.Producer == fmt.Sprint("p", life) && !r.Ended {
						lease.lose()
					}
				}
				p := startWith(t, journalConfig(fmt.Sprint("p", life), mode), depsOn(kept, env))
				over := false
				select {
				case <-kept.idle:
					over = true
				case <-lease.lost:
				}
				p.stop()
				if over {
					break
				}
			}
			for call, n := range pay.calls {
				require.Equal(t, 1, n, "a payment was made %d times: %s", n, call)
			}
			if len(kept.published) == 0 {
				require.Contains(t, kept.closed[0].Why, "was being called when the episode's producer died")
				return
			}
			require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(kept.published[0], want)))
		})
	})
}

// Invariant: a tool that changes something outside is called once though the broker dies with the newest records of the journal.
//
// The next producer took the journal for whole, or the ticket for new, and made the calls again that the lost records told of.
func TestInvariantLostRecordsMakeNoCallAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed, turns := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 6).Draw(rt, "turns")
		kills := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 6).Draw(rt, "kills")
		losses := rapid.SliceOfN(rapid.IntRange(0, 4), 6, 6).Draw(rt, "losses")
		// The broker loses the journal under a producer that lives, at a record; the producer dies a while later.
		gone, later := rapid.IntRange(0, 30).Draw(rt, "gone"), time.Duration(rapid.IntRange(0, 9).Draw(rt, "later"))*700*time.Millisecond
		counted := rapid.Bool().Draw(rt, "deliveries are counted")
		if !counted {
			gone = 0 // a producer that knows of no journal cannot forbid over a fence: streams.TestAForbiddenJournalIsShort
		}
		mode := rapid.SampledFrom([]string{producers.JournalOn, producers.JournalAuto}).Draw(rt, "mode")
		synctest.Test(t, func(t *testing.T) {
			ticket := journalTicket(seed)
			pay := newCounted("pay", producers.EffectsOutside, 700*time.Millisecond)
			env := journalEnvironment(t, newSeeded(150*time.Millisecond), turns, newCounted("look", producers.EffectsNone, time.Second), pay)
			kept := newLedger(newStream())
			kept.left = 1
			for life, over := 1, false; !over; life++ {
				delivery := 1
				if counted {
					delivery = life
				}
				lease := kept.offer(ticket, delivery)
				lose := sync.OnceFunc(lease.lose)
				death := time.NewTimer(time.Hour)
				kept.seen = func(r *schemas.JournalRecord, n int) {
					if r.Producer != fmt.Sprint("p", life) || r.Ended {
						return
					}
					if slices.Contains(kills, n) {
						lose()
					}
					if n == gone {
						kept.refuse = streams.ErrJournalLost
						death.Reset(later)
					}
				}
				p := startWith(t, journalConfig(fmt.Sprint("p", life), mode), depsOn(kept, env))
				select {
				case <-kept.idle:
					over = true
				case <-lease.lost:
				case <-death.C:
					lose()
				}
				p.stop()
				kept.lose(ticket.ID, losses[min(life, len(losses))-1])
				kept.mu.Lock()
				kept.refuse = nil
				kept.mu.Unlock()
			}
			for call, n := range pay.calls {
				require.Equal(t, 1, n, "a payment was made %d times: %s", n, call)
			}
			if len(kept.published) == 0 {
				require.Len(t, kept.closed, 1)
				require.Regexp(t, "a tool was being called when|a record of the episode is missing", kept.closed[0].Why)
			}
		})
	})
}

// A ticket whose journal is short is closed, and counted as an uncertain call: it does not begin again.
func TestAShortJournalEndsTheEpisode(t *testing.T) {
	for _, delivery := range []int{1, 2} { // the broker may have lost the delivery, too
		synctest.Test(t, func(t *testing.T) {
			ticket, tool := journalTicket(secondSeed), newCounted("pay", producers.EffectsOutside, time.Second)
			env := journalEnvironment(t, newSeeded(100*time.Millisecond), 6, tool)
			led := newLedger(newStream())
			led.left = 1
			lease := led.offer(ticket, 1)
			led.seen = func(r *schemas.JournalRecord, _ int) {
				if slices.ContainsFunc(r.Calls, func(c schemas.JournalCall) bool { return c.State == schemas.JournalAnswered }) {
					lease.lose()
				}
			}
			first := startWith(t, journalConfig("p1", producers.JournalOn), depsOn(led, env))
			<-lease.lost
			first.stop()
			led.lose(ticket.ID, int(led.next))
			led.seen = nil
			called := tool.count()
			metrics, registry := newJournalMetrics(t)
			led.offer(ticket, delivery)
			deps := depsOn(led, env)
			deps.Metrics = metrics
			second := startWith(t, journalConfig("p2", producers.JournalOn), deps)
			<-led.idle
			second.stop()
			require.Equal(t, called, tool.count())
			require.Empty(t, led.published)
			require.Len(t, led.closed, 1)
			require.Contains(t, led.closed[0].Why, "a record of the episode is missing, as where the broker died with it")
			require.Equal(t, 1.0, counter(t, registry, "journal_calls_total", "uncertain"))
		})
	}
}

// Two producers have a ticket at the same delivery, for the broker has lost that it delivered the ticket to the first: the first stops.
func TestOfTwoProducersAtTheSameDeliveryTheFirstStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket, tool := journalTicket(secondSeed), newCounted("pay", producers.EffectsOutside, 2*time.Second)
		env := journalEnvironment(t, newSeeded(300*time.Millisecond), 8, tool)
		led := newLedger(newStream())
		led.left = 1
		led.offer(ticket, 1)
		first := startWith(t, journalConfig("p1", producers.JournalOn), depsOn(led, env))
		<-time.After(3500 * time.Millisecond)
		led.offer(ticket, 1)
		second := startWith(t, journalConfig("p2", producers.JournalOn), depsOn(led, env))
		<-led.idle
		second.stop()
		first.stop()
		for call, n := range tool.calls {
			require.Equal(t, 1, n, call)
		}
	})
}

// An episode that failed begins again with its next producer, from its first token.
func TestAnEpisodeThatFailedBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket, tool := journalTicket(secondSeed), newCounted("look", producers.EffectsNone, time.Second)
		policy := newSeeded(100 * time.Millisecond)
		env := journalEnvironment(t, policy, 5, tool)
		want := undisturbed(t, ticket, env)
		policy.Forget()
		env.Reward = new(failsOnce)
		led := newLedger(newStream())
		led.left = 1
		led.offer(ticket, 1)
		p := startWith(t, journalConfig("p1", producers.JournalOn), depsOn(led, env))
		<-led.idle
		p.stop()
		require.Len(t, led.published, 1)
		require.Equal(t, 2*want.ActionTokens(), countSampled(policy))
	})
}

// failsOnce is a reward that fails the first time.
type failsOnce struct{ failed atomic.Bool }

func (r *failsOnce) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	if !r.failed.Swap(true) {
		return producers.Score{}, errors.New("no score")
	}
	return producers.Score{Total: 1}, nil
}
