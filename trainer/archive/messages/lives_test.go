package messages

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages that were kept before the stream lost others were counted as lost, and noted, once the stream had lost messages.
func TestWhatWasKeptBeforeALossIsNotCountedAsLost(t *testing.T) {
	t.Parallel()
	for kept, lost := range map[uint64]uint64{0: 3, 2: 3, 3: 0, 5: 0} {
		store := Folder{Dir: t.TempDir()}
		stream := noiseStream(6)
		open := func(losses int64) *Archive {
			a, err := Open(store, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born, Losses: losses}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			return a
		}
		a := open(0)
		_, err := a.Keep(t.Context(), stream, kept)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		stream.purged = 3
		for range 2 {
			a = open(1)
			_, err = a.Keep(t.Context(), stream, 4)
			require.NoError(t, err)
			if lost == 0 {
				require.Empty(t, a.Gaps(), kept)
			} else {
				require.Equal(t, []Span{{0, lost}}, a.Gaps(), kept)
			}
			require.Equal(t, lost > 0, a.Lacks(2))
			require.NoError(t, a.Close())
		}
		found, err := Verify(store)
		require.NoError(t, err)
		require.Empty(t, found.Damage)
		require.Equal(t, lost > 0, len(found.Notes) > 0, kept)
	}
}
