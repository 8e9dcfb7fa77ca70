package view_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A ticket that came back and is leased again is counted by the broker, and shown with what it means.
func TestARedeliveredTicketIsShown(t *testing.T) {
	fulltest.Need(t, "a browser: the second pass of CI has it")
	b := startBrowser(t)
	run, err := streamtest.Conn(t).Open(t.Context(), "demo", streams.DefaultTopology())
	require.NoError(t, err)
	first, second := streamtest.Ticket(0, 0), streamtest.Ticket(0, 1)
	first.Run, second.Run = "demo", "demo"
	require.NoError(t, run.Issue(t.Context(), first, second))
	source, err := run.Tickets(t.Context(), streams.TicketOptions{MaxLeases: 2})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	a, err := source.Take(t.Context())
	require.NoError(t, err)
	_, err = source.Take(t.Context())
	require.NoError(t, err)
	seen, err := runfolder.ReadStreams(t.Context(), run, time.Now())
	require.NoError(t, err)
	require.Equal(t, 2, seen.Tickets.Leased)
	require.Zero(t, seen.Tickets.Redelivered)

	page := serve(t, view.Run{Run: runfolder.Run{Name: "demo", Connect: func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }}})
	b.open(page)
	b.until(`location.hash === '#/demo/overview'`)
	b.eval(`location.hash = '#/demo/streams'`, nil)
	card := `[...document.querySelectorAll('.card')].find((e) => e.innerText.includes('redelivered')).querySelector('b').textContent`
	b.until(card + ` === '0'`)
	require.NotContains(t, b.text("#main"), "came back")
	require.NoError(t, a.Return(t.Context(), 0))
	again, err := source.Take(t.Context())
	require.NoError(t, err)
	require.Equal(t, a.Ticket.ID, again.Ticket.ID)
	b.until(card + ` === '1'`)
	require.Contains(t, b.text("#main"), "1 leased tickets were leased before and came back")
	require.Empty(t, b.complaints())
}
