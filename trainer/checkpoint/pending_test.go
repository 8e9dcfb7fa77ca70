package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

func pendingMessages() []schemas.Delivery {
	return []schemas.Delivery{
		{Sequence: 3, Trajectory: &schemas.Trajectory{
			Run: "r", ID: "g000001-a0-0", Group: "g000001-a0", Cursor: 1, GroupSize: 2, Reward: 0.5, Stop: schemas.StopAnswer,
			Segments: []schemas.Segment{{
				Tokens: schemas.Int32s{1, 2}, ActionMask: schemas.Bytes{0, 1}, Logprobs: schemas.Float32s{0, -1},
				Versions: schemas.Runs{schemas.NoVersion, 4}, Temperature: 1,
			}},
		}},
		{Sequence: 1 << 40, Closed: &schemas.GroupClosed{Run: "r", Group: "g000001-a0", Cancelled: []int{1}}},
	}
}

func TestPendingMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	data, err := encodePending(pendingMessages())
	require.NoError(t, err)
	got, err := decodePending(data)
	require.NoError(t, err)
	require.Len(t, got, 2)
	again, err := encodePending(got)
	require.NoError(t, err)
	require.Equal(t, data, again)
	require.Equal(t, "g000001-a0-0", got[0].Trajectory.ID)
	require.Equal(t, pendingMessages()[0].Trajectory.Segments, got[0].Trajectory.Segments)
	require.Equal(t, []int{1}, got[1].Closed.Cancelled)
	for _, cut := range []int{1, 11, 12, 30, len(data) - 1} {
		_, err := decodePending(data[:cut])
		require.ErrorIs(t, err, errPending)
	}
}

func FuzzDecodePending(f *testing.F) {
	data, err := encodePending(pendingMessages())
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodePending(data)
		if err != nil {
			require.ErrorIs(t, err, errPending)
			return
		}
		_, err = encodePending(got)
		require.NoError(t, err)
	})
}
