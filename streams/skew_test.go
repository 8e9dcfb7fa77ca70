package streams_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestAheadIsTheMiddleOfTheRoundTrip(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ahead, unsure := streams.Ahead(at.Add(time.Minute+2*time.Second), at, at.Add(4*time.Second))
	require.Equal(t, time.Minute, ahead)
	require.Equal(t, 2*time.Second, unsure)
	ahead, _ = streams.Ahead(at.Add(-time.Hour), at, at)
	require.Equal(t, -time.Hour, ahead)
}

// A machine whose clock differs from the broker's is told so when it attaches or opens, once, with what to do; and what goes through it
// is neither lost nor refused: a ticket is issued, taken and done, and its trajectory read.
func TestASkewedClockIsNamedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clock func() time.Time
		says  string
	}{
		"right":     {time.Now, ""},
		"ahead":     {func() time.Time { return time.Now().Add(time.Hour) }, `broker_ahead=-(59m59|1h0m0)`},
		"behind":    {func() time.Time { return time.Now().Add(-time.Hour) }, `broker_ahead=(59m59|1h0m0)`},
		"not asked": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streamtest.Start(t)
			streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
			var log bytes.Buffer
			conn, err := streams.Connect(t.Context(), streams.ConnectConfig{Broker: b, Now: c.clock}, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			run, err := conn.Attach(t.Context(), "test")
			require.NoError(t, err)
			_, err = conn.Attach(t.Context(), "test")
			require.NoError(t, err)
			_, err = conn.Open(t.Context(), "test", run.Topology())
			require.NoError(t, err)

			feed, err := run.Feed(t.Context(), streams.FeedOptions{})
			require.NoError(t, err)
			require.NoError(t, run.Issue(t.Context(), streamtest.Ticket(1, 0)))
			source, err := run.Tickets(t.Context(), streams.TicketOptions{Producer: "p"})
			require.NoError(t, err)
			lease, err := source.Take(t.Context())
			require.NoError(t, err)
			require.NoError(t, run.Publish(t.Context(), streamtest.Trajectory(1, 0, 4, 0)))
			require.NoError(t, lease.Done(context.WithoutCancel(t.Context())))
			d, err := feed.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, streamtest.Trajectory(1, 0, 4, 0).ID, d.Trajectory.ID)
			feed.Close()
			source.Close()
			conn.Close()

			if c.says == "" {
				require.Empty(t, log.String())
				return
			}
			require.Contains(t, log.String(), "level=WARN")
			require.Regexp(t, c.says, log.String())
			require.Contains(t, log.String(), "timedatectl set-ntp true")
			require.Equal(t, 1, strings.Count(log.String(), "the broker's clock differs from this machine's"), log.String())
		})
	}
}
