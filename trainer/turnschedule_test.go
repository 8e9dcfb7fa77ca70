package trainer

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The limit at a version is that of the newest entry up to it, grows with the versions, and ends as that of evaluations.
func TestATurnScheduleHoldsFromEachStepToTheNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		schedule, from, turns := TurnSchedule{}, int64(0), rapid.IntRange(1, 4).Draw(rt, "turns")
		var limits []int // by version
		for range rapid.IntRange(1, 5).Draw(rt, "entries") {
			schedule[from] = turns
			for range rapid.Int64Range(1, 40).Draw(rt, "versions") {
				limits = append(limits, turns)
				from++
			}
			turns += rapid.IntRange(0, 5).Draw(rt, "more")
		}
		require.NoError(rt, schedule.Validate())
		for version, want := range limits {
			require.Equal(rt, want, schedule.At(int64(version), 99))
		}
		require.Equal(rt, limits[len(limits)-1], schedule.Last(99))
		require.Equal(rt, schedule.Last(99), schedule.At(int64(len(limits)+1000), 99))
	})
	require.Equal(t, 6, TurnSchedule(nil).At(5, 6))
	require.Equal(t, 6, TurnSchedule(nil).Last(6))
}

func TestFaultsOfATurnSchedule(t *testing.T) {
	t.Parallel()
	for want, schedule := range map[string]TurnSchedule{
		"0: missing: say what holds from step 0":                        {5: 2},
		"7: 2: must be at least 3: the limit grows with the steps":      {0: 3, 7: 2},
		"0: 0: must be at least 1: the limit grows with the steps":      {0: 0},
		"-1: -1: a step must not be negative":                           {0: 1, -1: 1},
		`task "a": turns.0: missing: say what holds from step 0`:        {1: 1},
		"9: 1: must be at least 4: the limit grows with the steps\n12:": {0: 4, 9: 1, 12: 2},
	} {
		err := schedule.Validate()
		if _, mixErr := Mix(Task{Name: "a", Prompts: numbered{}, Turns: schedule}); schedule[1] == 1 {
			err = mixErr
		}
		require.ErrorContains(t, err, want)
	}
}

// ticketBook is a world that keeps every ticket each time that it is issued.
type ticketBook struct {
	*world
	mu      sync.Mutex
	tickets map[string][]*schemas.Ticket // by id
}

func (b *ticketBook) Issue(ctx context.Context, tickets ...*schemas.Ticket) error {
	b.mu.Lock()
	for _, t := range tickets {
		b.tickets[t.ID] = append(b.tickets[t.ID], t)
	}
	b.mu.Unlock()
	return b.world.Issue(ctx, tickets...)
}

// Invariant: a ticket's limit follows from its version, and stays as it is when a trainer that was killed issues the ticket again at a
// later one.
func TestATicketHasTheLimitOfItsVersion(t *testing.T) {
	t.Parallel()
	schedule := TurnSchedule{0: 1, 2: 3, 4: 8}
	mixed, err := Mix(Task{Name: "count", Prompts: questions{prompts{7}}, Turns: schedule, Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 96}})
	require.NoError(t, err)
	w := newWorld(7)
	book := &ticketBook{world: w, tickets: map[string][]*schemas.Ticket{}}
	calls := 0
	w.crash = func(string) error {
		if calls++; calls%60 == 0 && calls < 400 {
			return errCrash
		}
		return nil
	}
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, 2
	for err = errCrash; errors.Is(err, errCrash); {
		err = Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(7), Stream: book, Prompts: mixed, Log: streamtest.Log(t)})
	}
	require.NoError(t, err)
	limits, again := map[int]int{}, 0
	for id, issues := range book.tickets {
		again += len(issues) - 1
		for _, ticket := range issues {
			require.Equal(t, schedule.At(ticket.PolicyVersion, -1), ticket.Limits.MaxTurns, id)
			require.Equal(t, issues[0].PolicyVersion, ticket.PolicyVersion, id)
			require.Equal(t, 96, ticket.Limits.MaxTokens, id)
			limits[ticket.Limits.MaxTurns]++
		}
	}
	require.Len(t, limits, 3, "all of the schedule was in force")
	require.Positive(t, again, "tickets were issued again")
}

// questions are prompts without their task.
type questions struct{ prompts }

func (q questions) Prompt(cursor uint64) schemas.Prompt { return q.prompts.Prompt(cursor).Prompt }
