package scale

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDecideAddsWhereOthersWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		now  Workers
		s    Signal
		want Workers
		why  string
	}{
		{"nobody waits", Workers{2, 1}, Signal{TrainerWaits: 0.1, TicketsWaiting: 50}, Workers{2, 1}, "nobody waits long"},
		{"tickets wait", Workers{2, 1}, Signal{TrainerWaits: 0.5, TicketsWaiting: 64, TicketsLeased: 128}, Workers{3, 1}, "more producers"},
		{"many tickets wait", Workers{2, 1}, Signal{TrainerWaits: 0.5, TicketsWaiting: 9000, TicketsLeased: 128}, Workers{4, 1}, "more producers"},
		{"no producer has any", Workers{1, 1}, Signal{TrainerWaits: 1, TicketsWaiting: 9}, Workers{2, 1}, "more producers"},
		{"calls wait", Workers{4, 1}, Signal{TrainerWaits: 0.5, TicketsWaiting: 64, TicketsLeased: 1, CallsWaiting: new(64), CallsRunning: new(64)}, Workers{4, 2}, "more inference consumers"},
		{"a few calls wait", Workers{4, 1}, Signal{TrainerWaits: 0.5, CallsWaiting: new(2), CallsRunning: new(64)}, Workers{4, 1}, "workers cannot help"},
		{"all at work", Workers{4, 1}, Signal{TrainerWaits: 0.9, TicketsLeased: 100}, Workers{4, 1}, "workers cannot help"},
		{"at the bound", Workers{8, 4}, Signal{TrainerWaits: 0.9, TicketsWaiting: 100}, Workers{8, 4}, "more producers"},
	} {
		got, why := NewDecider(DefaultBounds()).Decide(c.now, c.s)
		require.Equal(t, c.want, got, c.name)
		require.Contains(t, why, c.why, c.name)
	}
}

func TestDecideTakesAwayOnlyAfterACalm(t *testing.T) {
	t.Parallel()
	b := DefaultBounds()
	b.Calm = 3
	d := NewDecider(b)
	slow := Signal{TrainerWaits: 0, CallsWaiting: new(0), CallsRunning: new(1)}
	at := func(s Signal) Workers { w, _ := d.Decide(Workers{2, 2}, s); return w }
	require.Equal(t, Workers{2, 2}, at(slow))
	require.Equal(t, Workers{2, 2}, at(slow))
	require.Equal(t, Workers{2, 2}, at(Signal{TrainerWaits: 0.1}), "the calm is over")
	require.Equal(t, Workers{2, 2}, at(slow))
	require.Equal(t, Workers{2, 2}, at(slow))
	require.Equal(t, Workers{1, 2}, at(slow))
	slow.TicketsWaiting = 4
	at(slow)
	at(slow)
	require.Equal(t, Workers{2, 1}, at(slow), "producers are busy, engines are not")
}

// Invariant: the numbers stay within the bounds.
func TestInvariantTheNumbersStayWithinTheBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := DefaultBounds()
		b.Min = Workers{rapid.IntRange(1, 4).Draw(t, "min"), rapid.IntRange(1, 4).Draw(t, "min")}
		b.Max = Workers{b.Min.Producers + rapid.IntRange(0, 60).Draw(t, "max"), b.Min.Inference + rapid.IntRange(0, 8).Draw(t, "max")}
		b.Calm = rapid.IntRange(1, 3).Draw(t, "calm")
		require.NoError(t, b.Validate())
		d := NewDecider(b)
		now := b.Min
		for range 50 {
			s := Signal{
				TrainerWaits: rapid.Float64Range(0, 1).Draw(t, "waits"), TicketsWaiting: rapid.IntRange(0, 1000).Draw(t, "waiting"),
				TicketsLeased: rapid.IntRange(0, 1000).Draw(t, "leased"),
			}
			if rapid.Bool().Draw(t, "told") {
				s.CallsWaiting, s.CallsRunning = new(rapid.IntRange(0, 100).Draw(t, "calls")), new(rapid.IntRange(0, 100).Draw(t, "running"))
			}
			next, why := d.Decide(now, s)
			require.NotEmpty(t, why)
			require.True(t, b.Min.Producers <= next.Producers && next.Producers <= b.Max.Producers && b.Min.Inference <= next.Inference && next.Inference <= b.Max.Inference, "%+v", next)
			require.LessOrEqual(t, next.Producers, 2*now.Producers)
			require.LessOrEqual(t, next.Inference, 2*now.Inference)
			require.GreaterOrEqual(t, next.Producers, now.Producers-1)
			now = next
		}
	})
}

func TestBoundsAreChecked(t *testing.T) {
	t.Parallel()
	b := Bounds{Min: Workers{0, 2}, Max: Workers{4, 1}, Starved: 0.1, Idle: 0.2}
	err := b.Validate()
	for _, key := range []string{"producers:", "inference:", "starved:", "calm:"} {
		require.ErrorContains(t, err, key)
	}
}
