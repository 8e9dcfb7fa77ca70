package schemas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a producer reports of failures comes back from its event, also over the wire.
func TestAFailingComesBackFromItsEvent(t *testing.T) {
	for _, f := range []Failing{
		{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 19, "tool": 1}, Last: "agent mine: answered 503"},
		{Task: "a/b", Over: true, Failed: 6, Succeeded: 54, ByCause: map[string]int{"reward": 6}, Last: "reward: caf\xe9"},
		{Task: "crates", ByCause: map[string]int{}, Late: 12, Last: "POST /v1/chat/completions"},
	} {
		data, err := Marshal(*f.Event("r", "p1", time.Unix(7, 0)))
		require.NoError(t, err)
		var e Event
		require.NoError(t, Unmarshal(data, &e))
		require.NoError(t, e.Validate())
		require.Equal(t, "p1", e.Worker)
		got, ok := FailingOf(&e)
		require.True(t, ok)
		if f.Over {
			f.Last = "reward: caf\uFFFD"
		}
		require.Equal(t, f, got)
	}
	_, ok := FailingOf(sampleEvent())
	require.False(t, ok)
}
