package memory

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercentLeavesLessBesideMore(t *testing.T) {
	for live, want := range map[int64]int{0: 100, headroom: 100, 2 * headroom: 50, 4 * headroom: 25, 1 << 40: 10} {
		require.Equal(t, want, Percent(live), live)
	}
}

func TestBoundLeavesWhatTheUserHasSet(t *testing.T) {
	now := debug.SetGCPercent(100)
	defer debug.SetGCPercent(now)
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(set) != "" {
			require.NoError(t, os.Unsetenv(set)) // of the whole package's run: no other test reads them
		}
	}
	undo := Bound(1 << 40)
	require.Equal(t, 10, debug.SetGCPercent(10))
	undo()
	require.Equal(t, 100, debug.SetGCPercent(100))
	t.Setenv("GOMEMLIMIT", "1GiB")
	Bound(1 << 40)()
	require.Equal(t, 100, debug.SetGCPercent(100))
}

func TestAnonymous(t *testing.T) {
	n, found := anonymousMemory([]byte("VmRSS:\t   9000 kB\nRssAnon:\t    4000 kB\nRssFile:\t  5000 kB\nRssShmem:\t     96 kB\n"))
	require.True(t, found)
	require.EqualValues(t, 4096<<10, n)
	_, found = anonymousMemory([]byte("VmRSS:\t   9000 kB\n"))
	require.False(t, found)
	_, found = anonymousMemory([]byte("RssAnon:\tmany kB\n"))
	require.False(t, found)
}

// What is taken while it is watched shows in the peak, also when it has gone by then.
func TestWatchSeesThePeak(t *testing.T) {
	const taken = 64 << 20
	rest := Settle()
	stop := Watch()
	room := make([]byte, taken)
	for i := range room {
		room[i] = byte(i)
	}
	require.GreaterOrEqual(t, stop()-rest, int64(taken)*9/10)
	require.EqualValues(t, 255, room[255])
}
