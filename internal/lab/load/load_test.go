package load

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// serveCommand is the first argument with which this program is the broker of a measurement.
const serveCommand = "load-broker"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == serveCommand {
		if err := Serve(context.Background(), os.Args[2], os.Args[3] == "true"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// Tickets, leases, calls and trajectories go through a broker in another process, and each is counted.
func TestALoadGoesThroughABrokerAndIsCounted(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	c := Default()
	c.Producers, c.Slots, c.Engines, c.EngineSlots, c.Turns, c.Sync = 3, 2, 2, 2, 2, false
	c.Token, c.Tool, c.Lease = time.Microsecond, time.Millisecond, time.Minute
	for c.For = time.Second; ; c.For *= 2 { // until a machine that others use has come to it
		r, err := Measure(t.Context(), c, []string{self, serveCommand})
		require.NoError(t, err)
		require.Positive(t, r.MessagesIn)
		if (r.Episode.Count == 0 || r.Lag.Count == 0) && c.For < time.Minute {
			continue
		}
		require.Positive(t, r.Episode.Count)
		require.Positive(t, r.Lag.Count)
		require.Positive(t, r.Generate.Count)
		require.Greater(t, r.BytesIn, float64(9*c.Tokens*r.Publish.Count)/r.Seconds/2, "a trajectory is nine bytes a token")
		require.Positive(t, r.EngineBusy)
		require.LessOrEqual(t, r.EngineBusy, 1.1)
		var text strings.Builder
		r.Print(&text)
		require.Contains(t, text.String(), "limit        "+r.Limit)
		return
	}
}

func TestWhatWasFullIsTheLimit(t *testing.T) {
	base := func(change func(*Report)) *Report {
		r := &Report{Config: Config{Producers: 10, Slots: 1}, Seconds: 10}
		change(r)
		return r
	}
	for want, r := range map[string]*Report{
		"producers":  base(func(r *Report) { r.Tool.TotalSec = 99 }),
		"engines":    base(func(r *Report) { r.EngineBusy = 0.95 }),
		"processors": base(func(r *Report) { r.MachineBusy, r.Publish.TotalSec = 1, 20 }),
		"broker":     base(func(r *Report) { r.Done.TotalSec = 30 }),
		"tickets":    base(func(r *Report) { r.Lease.TotalSec = 50 }),
	} {
		require.Equal(t, want, r.findLimit())
	}
}

func TestEveryFaultOfALoadIsReported(t *testing.T) {
	c := Default()
	require.NoError(t, c.Validate())
	c.Producers, c.Tokens, c.Token = 0, 5000000, -1
	err := c.Validate()
	for _, key := range []string{"producers", "tokens", "token:"} {
		require.ErrorContains(t, err, key)
	}
}
