//go:build linux && (amd64 || arm64)

package python

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
)

// 13.6's next door: the first cell of an episode waited for its sandbox in the time of the episode and of the call.
func TestTheFirstCellOfAnEpisodeOutwaitsItsTimeLimit(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	tool, err := New(DefaultConfig(), nil, m)
	require.NoError(t, err)
	workspacetest.Outwait(t, m, tools.Within(tool, workspacetest.OutwaitLimit), "6 * 7", "42")
}

// A place is waited for without a sandbox in it. A cell that is refused takes none.
func TestACellTakesItsPlaceAndStartsNothing(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	before := pool.Stats()
	tool, err := New(DefaultConfig(), nil, m)
	require.NoError(t, err)
	for _, episode := range []string{"a", "b"} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	}
	take := func(episode, code string) (bool, error) {
		return producers.TakePlaceOf(t.Context(), tools.Within(tool, time.Minute), producers.Call{Episode: episode, Arguments: code}, time.Millisecond)
	}
	own, err := take("a", strings.Repeat("x", DefaultConfig().CodeBytes+1))
	require.NoError(t, err)
	require.False(t, own)
	require.Zero(t, pool.Stats().Running)
	for range 2 {
		own, err = take("a", "1")
		require.NoError(t, err)
		require.True(t, own)
		require.Equal(t, 1, pool.Stats().Running)
		require.Equal(t, before.Started, pool.Stats().Started)
	}
	own, err = take("b", "1")
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.False(t, own)
	require.NoError(t, tool.Close(t.Context(), "a"))
	_, err = take("b", "1")
	require.NoError(t, err)
	o, err := tool.Call(t.Context(), producers.Call{Episode: "b", Arguments: "1 + 1"})
	require.NoError(t, err)
	require.Equal(t, "2", o.Text)
	require.NoError(t, tool.Close(t.Context(), "b"))
	_, err = take("b", "1")
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.NotErrorIs(t, err, producers.ErrNoRoom)
}
