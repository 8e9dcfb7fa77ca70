//go:build linux && (amd64 || arm64)

package mcp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
)

// Findings 12a.9 and 12a.6: an episode whose server in a sandbox broke down goes on in its place while others wait for one, and what runs after its last
// turn runs in that place too.
func TestAnEpisodeKeepsThePlaceOfItsServer(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	server, err := New(t.Context(), command(t, "serve", true), m)
	require.NoError(t, err)
	served := map[string]producers.Tool{}
	for _, tool := range server.Tools() {
		served[tool.Spec().Name] = tool
	}
	open(t, served, "a")
	got, err := call(t.Context(), served["count"], "a", "{}")
	require.NoError(t, err)
	require.Equal(t, "1", got)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		_, err := m.Fresh(ctx)
		waited <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().Waiting == 1 }, patient, time.Millisecond)
	_, err = call(t.Context(), served["die"], "a", "{}")
	require.EqualError(t, err, anew)
	got, err = call(t.Context(), served["count"], "a", "{}")
	require.NoError(t, err)
	require.Equal(t, "1", got)
	within, done := context.WithTimeout(t.Context(), patient)
	defer done()
	w, err := m.FreshAfter(within, "a")
	require.NoError(t, err)
	r, err := w.Run(within, producers.Command{Argv: []string{"true"}})
	require.NoError(t, err)
	require.Zero(t, r.Exit)
	w.Close()
	cancel()
	require.ErrorIs(t, <-waited, producers.ErrUnavailable)
}

// 13.6's next door: the first call of an episode waited for its server's sandbox in the time of the episode and of the call.
func TestTheFirstCallOfAServerOutwaitsItsTimeLimit(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	server, err := New(t.Context(), command(t, "serve", true), m)
	require.NoError(t, err)
	for _, tool := range server.Tools() {
		if tool.Spec().Name == "count" {
			workspacetest.Outwait(t, m, tools.Within(tool, workspacetest.OutwaitLimit), "{}", "1")
		}
	}
}

// The place of a server that all episodes share is no episode's: an episode that waited for it has no place of its own. What is refused
// takes none.
func TestThePlaceOfASharedServerIsNoEpisodes(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	for _, shared := range []bool{true, false} {
		cfg := command(t, "serve", true)
		cfg.Shared = shared
		server, err := New(t.Context(), cfg, m)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, patient, time.Millisecond)
		tool := server.Tools()[0].(*Tool)
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "a"}))
		own, err := tool.TakePlace(t.Context(), producers.Call{Episode: "a", Arguments: "what"}, 0)
		require.NoError(t, err)
		require.False(t, own)
		require.Zero(t, pool.Stats().Running)
		own, err = tool.TakePlace(t.Context(), producers.Call{Episode: "a", Arguments: "{}"}, 0)
		require.NoError(t, err)
		require.Equal(t, !shared, own)
		require.Equal(t, 1, pool.Stats().Running)
		require.NoError(t, tool.Close(t.Context(), "a"))
		require.Zero(t, pool.Stats().Running)
	}
}
