package main

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

// The broker of a measurement is this program, started again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		if err := command(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// Tickets, leases, calls and trajectories go through a broker in another process, and each is counted.
func TestALoadGoesThroughABrokerAndIsCounted(t *testing.T) {
	c := defaults()
	c.Producers, c.Slots, c.Engines, c.EngineSlots, c.Turns, c.Sync = 3, 2, 2, 2, 2, false
	c.Token, c.Tool, c.Lease = time.Microsecond, time.Millisecond, time.Minute
	for c.For = time.Second; ; c.For *= 2 { // until a machine that others use has come to it
		r, err := measure(t.Context(), c)
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
		r.print(&text)
		require.Contains(t, text.String(), "limit        "+r.Limit)
		return
	}
}

func TestWhatWasFullIsTheLimit(t *testing.T) {
	base := func(change func(*report)) *report {
		r := &report{Config: config{Producers: 10, Slots: 1}, Seconds: 10}
		change(r)
		return r
	}
	for want, r := range map[string]*report{
		"producers":  base(func(r *report) { r.Tool.TotalSec = 99 }),
		"engines":    base(func(r *report) { r.EngineBusy = 0.95 }),
		"processors": base(func(r *report) { r.MachineBusy, r.Publish.TotalSec = 1, 20 }),
		"broker":     base(func(r *report) { r.Done.TotalSec = 30 }),
		"tickets":    base(func(r *report) { r.Lease.TotalSec = 50 }),
	} {
		require.Equal(t, want, r.limit())
	}
}

func TestEveryFaultOfALoadIsReported(t *testing.T) {
	c := defaults()
	require.NoError(t, c.Validate())
	c.Producers, c.Tokens, c.Token = 0, 5000000, -1
	err := c.Validate()
	for _, key := range []string{"producers", "tokens", "token:"} {
		require.ErrorContains(t, err, key)
	}
}
