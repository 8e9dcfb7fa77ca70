package streams

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNamesThatASubjectCannotCarryAreRefused(t *testing.T) {
	for _, bad := range []string{"", "a.b", "a b", "*", ">", "a*", "weir/1", "übung", "a\n", strings.Repeat("x", 65)} {
		require.ErrorIs(t, CheckRunName(bad), ErrName, "%q", bad)
	}
	for _, good := range []string{"a", "A-1_b", strings.Repeat("x", 64)} {
		require.NoError(t, CheckRunName(good))
	}
}

func TestWorkerNamesAreNames(t *testing.T) {
	require.Equal(t, "producer-node-1-internal-7", workerName("producer", "node-1.internal", 7))
	long := workerName("inference", strings.Repeat("node.", 50)+"übung-1", 1<<22)
	require.Len(t, long, 64)
	require.NoError(t, CheckRunName(long))
	require.True(t, strings.HasSuffix(long, "node---bung-1-4194304"), long)
	require.NoError(t, CheckRunName(WorkerName("producer")))
}

func TestSubjects(t *testing.T) {
	n, err := newNames("r")
	require.NoError(t, err)
	require.Equal(t, "weir.r.trajectories.7.p1", n.trajectorySubject(7, "p1"))
	require.Equal(t, "weir.r.trajectories.none.p1", n.trajectorySubject(-1, "p1"))
	require.Equal(t, "weir.r.tickets.echo.g1-0.3", n.ticketSubject("echo", "g1-0", 3))
	require.Equal(t, "WEIR_r_TRAJECTORIES", n.trajectories)
}

func TestSampleOfATicketSubject(t *testing.T) {
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		n, err := newNames(name.Draw(t, "run"))
		require.NoError(t, err)
		group, sample := name.Draw(t, "group"), rapid.IntRange(0, 1000).Draw(t, "sample")
		gotGroup, gotSample, ok := sampleOf(n.ticketSubject(name.Draw(t, "task"), group, sample))
		require.True(t, ok)
		require.Equal(t, group, gotGroup)
		require.Equal(t, sample, gotSample)
	})
	for _, bad := range []string{"", "a.b", "weir.r.tickets.echo.g.x", "weir.r.tickets.echo.g.-1"} {
		_, _, ok := sampleOf(bad)
		require.False(t, ok, bad)
	}
}

func TestDetailFitsAHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := cleanDetail(rapid.String().Draw(t, "detail") + strings.Repeat("é", rapid.IntRange(0, 1000).Draw(t, "length")))
		require.LessOrEqual(t, len(got), maxDetail)
		require.NotContains(t, got, "\n")
		require.NotContains(t, got, "\r")
		require.Equal(t, strings.ToValidUTF8(got, "?"), got)
	})
}
