package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not issued is neither awaited nor lost; once a group has branched all of it is.
func TestWhatIsNotIssuedIsNotLost(t *testing.T) {
	a := New(Config{Run: "r", Groups: 1, MinGroup: 2}, Start{})
	a.Open(Group{Index: 0, Size: 5, HasBaseline: true, Trunks: 2})
	id := GroupID(0, 0)
	require.Equal(t, 3, a.Awaited(), "two trunks and the baseline")
	_, _, settled, open := a.Trunks(id)
	require.True(t, open)
	require.False(t, settled)

	e := a.GiveUp()
	require.Equal(t, []string{TicketID(0, 0, 0), TicketID(0, 0, 1), TicketID(0, 0, 4)}, e.Lost)
	require.Empty(t, e.Drops)
	require.Zero(t, a.Awaited())
	require.Empty(t, a.GiveUp().Lost, "nothing is left to give up")
	a.Advance(1)
	require.Empty(t, a.Unfillable(), "its other samples are about to be issued: producers must not cancel them")
	trunks, rest, settled, _ := a.Trunks(id)
	require.Empty(t, trunks)
	require.Equal(t, []int{2, 3}, rest)
	require.True(t, settled)

	a.Branched(id)
	require.Equal(t, 2, a.Awaited())
	e = a.GiveUp()
	require.Equal(t, []string{TicketID(0, 0, 2), TicketID(0, 0, 3)}, e.Lost)
	require.Len(t, e.Drops, 1)
	_, _, _, open = a.Trunks(id)
	require.False(t, open)
}
