package producers_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Each episode of a policy that never answers is cut at the limit of its own ticket and counted as that, and the same ticket gives the
// same episode again.
func TestAnEpisodeIsCutAtTheTurnsOfItsTicket(t *testing.T) {
	var lines []string
	for range 20 {
		lines = append(lines, "<search> sweden </search>")
	}
	limits := []int{1, 1, 3, 5, 2}
	rolled := func() map[string]*schemas.Trajectory {
		var tickets []*schemas.Ticket
		for i, most := range limits {
			ticket := newTicket(i)
			ticket.Limits.MaxTurns, ticket.Limits.MaxTokens = most, 1024
			tickets = append(tickets, ticket)
		}
		registry := prometheus.NewRegistry()
		metrics, err := producers.NewMetrics(registry)
		require.NoError(t, err)
		s := newStream(tickets...)
		p := startWith(t, config(), producers.Deps{
			Stream: s, Metrics: metrics,
			Environments: map[string]producers.Environment{"t": newEnvironment(t, &scripted{tok: newTokenizer(t), lines: lines, versions: make([]int32, len(lines))})},
		})
		<-s.idle
		p.stop()
		values, err := testutil.GatherAndCount(registry, "weir_producer_episodes_total")
		require.NoError(t, err)
		require.Equal(t, 1, values, "all ended for the same reason")
		out := map[string]*schemas.Trajectory{}
		for _, trajectory := range s.published {
			out[trajectory.ID] = trajectory
		}
		return out
	}
	first, again := rolled(), rolled()
	require.Len(t, first, len(limits))
	for i, most := range limits {
		id := newTicket(i).ID
		require.Equal(t, schemas.StopTurns, first[id].Stop)
		calls := 0
		for _, turn := range first[id].Turns {
			calls += len(turn.Calls)
		}
		require.Equal(t, most, calls)
		require.Equal(t, first[id].Segments, again[id].Segments)
	}
}

// A limit of one turn more than another changes nothing before the point where the shorter episode was cut.
func TestALongerLimitBeginsAsAShorterOne(t *testing.T) {
	cut := func(most int) []int32 {
		ticket := newTicket(0)
		ticket.Limits.MaxTurns = most
		trajectory, _, err := producers.Rollout(context.Background(), ticket, newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines}))
		require.NoError(t, err)
		return trajectory.Segments[0].Tokens
	}
	short, long := cut(1), cut(2)
	require.Greater(t, len(long), len(short))
	require.Equal(t, short, long[:len(short)])
}
