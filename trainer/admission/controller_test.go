package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Invariant: while rollouts start only as Capacity allows, accepted+running never exceeds (eta+version+1)*B.
func TestInvariantAcceptedPlusRunningNeverExceeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{
			Concurrency: rapid.IntRange(1, 12).Draw(t, "concurrency"),
			Batch:       rapid.IntRange(1, 6).Draw(t, "batch"),
			Eta:         rapid.IntRange(0, 4).Draw(t, "eta"),
		}
		l.Depth = rapid.IntRange(FollowEta, l.Eta).Draw(t, "depth")
		require.NoError(t, l.Validate())
		c := Restore(l, State{})
		for range rapid.IntRange(0, 200).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				if n := c.Capacity(); n > 0 {
					c.Start(rapid.IntRange(1, n).Draw(t, "start"))
				}
			case 1:
				if c.State().Running > 0 {
					c.Accept()
				}
			case 2:
				if c.State().Running > 0 {
					c.Reject()
				}
			case 3:
				c.SetVersion(c.State().Version + 1)
			}
			s := c.State()
			require.LessOrEqual(t, s.Accepted+s.Running, (l.Eta+int(s.Version)+1)*l.Batch)
			require.LessOrEqual(t, s.Running, l.Concurrency)
			require.Equal(t, s, Restore(l, s).State())
			require.Equal(t, c.Capacity(), Restore(l, s).Capacity())
		}
	})
}

func TestLimitsChangeWhileARunGoesOn(t *testing.T) {
	t.Parallel()
	c := Restore(Limits{Concurrency: 100, Batch: 4, Eta: 3, Depth: 1}, State{})
	require.Equal(t, 8, c.Capacity(), "depth paces below eta")
	c.SetLimits(Limits{Concurrency: 100, Batch: 4, Eta: 3, Depth: FollowEta})
	require.Equal(t, 16, c.Capacity())
	c.Start(16)
	c.SetLimits(Limits{Concurrency: 100, Batch: 4, Eta: 0, Depth: FollowEta})
	require.Equal(t, -12, c.Capacity(), "what runs goes on")
	for range 4 {
		c.Accept()
	}
	c.Refuse(1)
	require.Equal(t, State{Running: 12, Accepted: 3, Rejected: 1}, c.State())
}

func TestRecoverDoesNotBurst(t *testing.T) {
	t.Parallel()
	c := Restore(Limits{Concurrency: 1000, Batch: 8, Eta: 2, Depth: FollowEta}, State{})
	c.Recover(50)
	require.Equal(t, 24, c.Capacity())
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, Limits{Concurrency: 1, Batch: 1, Depth: FollowEta}.Validate())
	err := Limits{Eta: -1, Depth: -2}.Validate()
	for _, key := range []string{"concurrency", "batch", "eta", "depth"} {
		require.ErrorContains(t, err, key+": ")
	}
	require.ErrorContains(t, Limits{Concurrency: 1, Batch: 1, Eta: 1, Depth: 2}.Validate(), "must not exceed eta (1)")
}
