package operate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// fake is a run whose control another process may change in between.
type fake struct {
	control *schemas.Control
	between func(*schemas.Control)
	events  []*schemas.Event
	deaf    bool
}

func (f *fake) Name() string { return "demo" }

func (f *fake) UpdateControl(_ context.Context, change func(*schemas.Control) *schemas.Control) error {
	if f.between != nil {
		change(f.control) // the first try comes too late
		f.between(f.control)
	}
	if next := change(f.control); next != nil {
		f.control = next
	}
	return nil
}

func (f *fake) Emit(_ context.Context, e *schemas.Event) error {
	if f.deaf {
		return errors.New("the stream is full")
	}
	f.events = append(f.events, e)
	return nil
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestAnActChangesControlAndIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act     Act
		want    schemas.Control
		changes []string
		fault   string
	}{
		"pause":                {act: Act{Paused: new(true)}, want: schemas.Control{Paused: true, Eta: 4, Depth: 3}, changes: []string{"paused: true, before false"}},
		"what is so already":   {act: Act{Paused: new(false), Eta: new(4)}, want: schemas.Control{Eta: 4, Depth: 3}, changes: []string{}},
		"eta and depth":        {act: Act{Eta: new(6), Depth: new(5)}, want: schemas.Control{Eta: 6, Depth: 5}, changes: []string{"eta: 6, before 4", "depth: 5, before 3"}},
		"a depth follows eta":  {act: Act{Eta: new(1)}, want: schemas.Control{Eta: 1, Depth: 1}, changes: []string{"eta: 1, before 4", "depth: 1, before 3"}},
		"drain":                {act: Act{Draining: new(true)}, want: schemas.Control{Draining: true, Eta: 4, Depth: 3}, changes: []string{"draining: true, before false"}},
		"a drain is for good":  {act: Act{Draining: new(false)}, fault: "cannot be taken back"},
		"a depth beyond eta":   {act: Act{Depth: new(9)}, fault: "depth: 9: must not exceed eta, which is 4"},
		"a negative eta":       {act: Act{Eta: new(-1)}, fault: "eta: -1"},
		"an eta out of reason": {act: Act{Eta: new(1 << 30)}, fault: "eta: 1073741824"},
		"nothing":              {fault: "nothing is to be changed"},
		"limits of a task": {
			act:     Act{Limits: &Limits{Task: "math", MaxTurns: new(int64(6)), Timeout: new("90s")}},
			want:    schemas.Control{Eta: 4, Depth: 3, Limits: []schemas.Limit{{Task: "math", Key: "max_turns", Value: 6}, {Task: "math", Key: "timeout", Value: 90e9}}},
			changes: []string{"limits.math.max_turns: 6, before configured", "limits.math.timeout: 1m30s, before configured"},
		},
		"limits of no task": {act: Act{Limits: &Limits{}}, fault: "limits: nothing is to be changed: want max_turns"},
		"a limit that is no number": {
			act: Act{Limits: &Limits{MaxTokens: new(int64(0)), MaxTurns: new(int64(-1)), MaxSegments: new(int64(1) << 40), Timeout: new("-1s")}, Eta: new(-1)},
			fault: "eta: -1: must be between 0 and 1000\nlimits.max_segments: 1099511627776: must be between 0 and 2147483648\n" +
				"limits.max_tokens: 0: must be between 1 and 2147483648\nlimits.max_turns: -1: must be between 0 and 2147483648\nlimits.timeout: -1s: must not be negative",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{control: &schemas.Control{Run: "demo", Eta: 4, Depth: 3, PolicyVersion: 7}}
			done, err := Do(t.Context(), f, c.act, "me", noon)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				require.Empty(t, f.events)
				require.Equal(t, &schemas.Control{Run: "demo", Eta: 4, Depth: 3, PolicyVersion: 7}, f.control)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.changes, done.Changes)
			c.want.Run, c.want.PolicyVersion = "demo", 7
			if len(c.changes) > 0 {
				c.want.At = noon
				require.Len(t, f.events, 1)
				require.Equal(t, EventControl, f.events[0].Type)
				require.Equal(t, "me", f.events[0].Worker)
				require.NoError(t, f.events[0].Validate())
			}
			require.Equal(t, &c.want, f.control)
		})
	}
}

// The last word holds: a limit of every task takes the place of what was set for one, and configured takes back what was set.
func TestTheLastWordOnALimitHolds(t *testing.T) {
	t.Parallel()
	f := &fake{control: &schemas.Control{Run: "demo", Eta: 4, Depth: 3}}
	for _, c := range []struct {
		act     Limits
		want    []schemas.Limit
		changes []string
	}{
		{Limits{MaxTurns: new(int64(4))}, []schemas.Limit{{Key: "max_turns", Value: 4}}, []string{"limits.max_turns: 4, before configured"}},
		{Limits{MaxTurns: new(int64(4))}, []schemas.Limit{{Key: "max_turns", Value: 4}}, []string{}},
		{
			Limits{Task: "math", MaxTurns: new(int64(9)), MaxTokens: new(int64(64))},
			[]schemas.Limit{{Key: "max_turns", Value: 4}, {Task: "math", Key: "max_tokens", Value: 64}, {Task: "math", Key: "max_turns", Value: 9}},
			[]string{"limits.math.max_tokens: 64, before configured", "limits.math.max_turns: 9, before configured"},
		},
		{
			Limits{MaxTurns: new(int64(5))},
			[]schemas.Limit{{Key: "max_turns", Value: 5}, {Task: "math", Key: "max_tokens", Value: 64}},
			[]string{"limits.math.max_turns: configured, before 9", "limits.max_turns: 5, before 4"},
		},
		{
			Limits{Task: "math", Configured: true, Timeout: new("0s")},
			[]schemas.Limit{{Key: "max_turns", Value: 5}, {Task: "math", Key: "timeout"}},
			[]string{"limits.math.max_tokens: configured, before 64", "limits.math.timeout: 0s, before configured"},
		},
		{Limits{Configured: true}, nil, []string{"limits.math.timeout: configured, before 0s", "limits.max_turns: configured, before 5"}},
	} {
		done, err := Do(t.Context(), f, Act{Limits: &c.act}, "me", noon)
		require.NoError(t, err)
		require.Equal(t, c.changes, done.Changes)
		require.Equal(t, c.want, f.control.Limits)
		require.NoError(t, f.control.Validate())
	}
}

func TestAnActGoesTogetherWithTheTrainers(t *testing.T) {
	t.Parallel()
	f := &fake{control: &schemas.Control{Run: "demo", Eta: 4, Depth: 4}, between: func(c *schemas.Control) { c.PolicyVersion = 9 }}
	done, err := Do(t.Context(), f, Act{Paused: new(true)}, "me", noon)
	require.NoError(t, err)
	require.Equal(t, []string{"paused: true, before false"}, done.Changes, "told once")
	require.Equal(t, int64(9), f.control.PolicyVersion)
}

func TestAnActBeforeTheRunHasBegun(t *testing.T) {
	t.Parallel()
	_, err := Do(t.Context(), &fake{}, Act{Paused: new(true)}, "me", noon)
	require.ErrorIs(t, err, ErrNotBegun)
}

func TestAnEventThatIsNotStoredHoldsNothingUp(t *testing.T) {
	t.Parallel()
	f := &fake{control: &schemas.Control{Run: "demo", Eta: 4, Depth: 4}, deaf: true}
	done, err := Do(t.Context(), f, Act{Paused: new(true)}, "me", noon)
	require.NoError(t, err)
	require.False(t, done.Told)
	require.True(t, f.control.Paused)
}
