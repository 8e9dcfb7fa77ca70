package producers_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// One producer serves tickets of two tasks: each rollout is scored by the reward of its own.
func TestATicketsTaskChoosesItsEnvironment(t *testing.T) {
	searching := newEnvironment(t, fresh(t))
	other := newEnvironment(t, fresh(t))
	other.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 7} })
	quiz := newTicket(1)
	quiz.Task = "quiz"
	s := newStream(newTicket(0), quiz)
	p := startWith(t, config(), producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": searching, "quiz": other}})
	<-s.idle
	p.stop()
	rewards := map[string]float64{}
	for _, trajectory := range s.published {
		rewards[trajectory.Task] = trajectory.Reward
	}
	require.Equal(t, map[string]float64{"t": 1.1, "quiz": 7}, rewards)
}

// A ticket of a task that no producer knows ends: another producer may know the task, so the ticket goes back, but not for ever.
func TestATicketOfAnUnknownTaskIsClosedWithItsReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	ticket := newTicket(0)
	ticket.Task = "chess"
	s := newStream(ticket)
	cfg := config()
	metrics, err := producers.NewMetrics(registry)
	require.NoError(t, err)
	p := startWith(t, cfg, producers.Deps{
		Stream: s, Environments: map[string]producers.Environment{"t": newEnvironment(t, fresh(t)), "quiz": newEnvironment(t, fresh(t))},
		Metrics: metrics,
	})
	<-s.idle
	p.stop()
	require.Empty(t, s.published)
	require.Len(t, s.returned, cfg.MaxDeliver-1)
	require.Zero(t, s.released, "each return counts as a delivery")
	require.Len(t, s.closed, 1)
	require.Equal(t, `no environment for task "chess": this producer has "quiz", "t"`, s.closed[0].Why)
	require.Equal(t, []string{ticket.ID}, s.done)
	n, err := testutil.GatherAndCount(registry, "weir_producer_dropped_total")
	require.NoError(t, err)
	require.Equal(t, 1, n, "all of it is counted as unknown_task")
}
