package recorded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// A trajectory has the reward of the file of weir rescore in the place of its own, but for the rewards of its tools; without a reward there it
// is left out. Other rewards are another fingerprint.
func TestTheRewardsOfAFileTakeThePlaceOfTheRecordedOnes(t *testing.T) {
	t.Parallel()
	r, _ := manyMessages(t)
	path := filepath.Join(t.TempDir(), "rescored.jsonl")
	write := func(run string, reward float64) {
		var b strings.Builder
		fmt.Fprintf(&b, "{\"run\":%q,\"rewards\":{}}\n", run)
		for n, tr := range r.trajectories {
			switch {
			case tr.Cursor == 0 && tr.Sample == 1:
				fmt.Fprintf(&b, "{\"id\":%q,\"sequence\":%d,\"was\":1,\"reward\":null,\"error\":\"its question is gone\"}\n", n.ID, n.Sequence)
			case tr.Cursor == 0 && tr.Sample == 2: // has no row
			default:
				fmt.Fprintf(&b, "{\"id\":%q,\"sequence\":%d,\"was\":1,\"reward\":%g,\"rewards\":{\"judged\":%[3]g},\"turns\":[0.125]}\n",
					n.ID, n.Sequence, reward+float64(tr.Sample))
			}
		}
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	open := func() (*Recording, error) {
		return Open(messages.Folder{Dir: r.dir}, Config{Run: "old", OnDamage: DamageStops, Passes: 1, Rewards: path})
	}
	write("other", 1)
	_, err := open()
	require.ErrorContains(t, err, "rows of run other")
	require.NoError(t, os.WriteFile(path, []byte("no rows\n"), 0o600))
	_, err = open()
	require.ErrorContains(t, err, "is no file of weir rescore")

	write("old", 3)
	have, err := open()
	require.NoError(t, err)
	defer have.Close()
	require.Equal(t, 2, have.Left.Unscored)
	have.Arrange(2, false)
	ticket := &schemas.Ticket{Prompt: have.Prompt(0), Sampling: schemas.Sampling{Temperature: 1}, Sample: 1}
	got, err := have.Recall(t.Context(), ticket)
	require.NoError(t, err)
	require.Equal(t, 3, got.Sample, "the second that is left")
	require.Equal(t, 6.0, got.Reward)
	require.Equal(t, map[string]float64{"judged": 6}, got.Rewards)
	require.Equal(t, 0.125, got.Turns[0].Reward)
	require.Equal(t, 0.25, got.Turns[0].ProcessReward, "a tool's reward is no part of the scorer's")
	ticket.Sample = 2
	_, err = have.Recall(t.Context(), ticket)
	require.ErrorIs(t, err, producers.ErrNotRecorded)

	same, err := open()
	require.NoError(t, err)
	defer same.Close()
	same.Arrange(2, false)
	require.Equal(t, have.Fingerprint(), same.Fingerprint())
	write("old", 4)
	others, err := open()
	require.NoError(t, err)
	defer others.Close()
	others.Arrange(2, false)
	require.NotEqual(t, have.Fingerprint(), others.Fingerprint())
	fewer, err := open()
	require.NoError(t, err)
	defer fewer.Close()
	fewer.Arrange(4, false)
	require.NotEqual(t, others.Fingerprint(), fewer.Fingerprint())
}
