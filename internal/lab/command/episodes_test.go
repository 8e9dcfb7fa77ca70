package command

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/lab/episodes"
)

// Producers are killed in the middle of episodes: each ticket gives the trajectory that it gives left alone, with other numbers of producers
// and engines, too, and no call with an effect outside is made twice.
func TestTheSameTicketGivesTheSameEpisodeAfterKills(t *testing.T) {
	fulltest.Need(t, "episodes of a second at several processes")
	c := episodes.Default()
	c.Episodes, c.Slots, c.Tool, c.Kill, c.Lease = 48, 4, 40*time.Millisecond, 0, 2*time.Second
	play := func(producers, engines int, kill time.Duration) *episodes.Played {
		c.Producers, c.Engines, c.Kill = producers, engines, kill
		played, err := episodes.Play(t.Context(), c, []string{program(t), episodesProducer}, t.TempDir())
		require.NoError(t, err)
		return played
	}
	alone := play(1, 1, 0)
	require.Equal(t, c.Episodes, alone.Trained)
	for _, n := range []int{2, 8} {
		killed := play(n, n, time.Second)
		report := episodes.Compare(c, alone, killed)
		require.Equal(t, c.Episodes, killed.Trained+countAll(killed.Closed))
		require.Zero(t, report.Other)
		require.Zero(t, killed.OutsideTwice)
		report.Print(t.Output())
	}
}

func countAll(of map[string]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

func TestTheReportOfEpisodesHasItsFigures(t *testing.T) {
	c := episodes.Default()
	alone := &episodes.Played{Seconds: 9, Sampled: 100}
	report := episodes.Compare(c, alone, &episodes.Played{Seconds: 10, Kills: 2, Sampled: 200, SampledAgain: 4, OutsideTwice: 1})
	require.InDelta(t, 0.02, report.AgainShare, 1e-9)
	require.InDelta(t, 0.5, report.LostSeconds, 1e-9)
	require.InDelta(t, 0.9, report.Effective, 1e-9)
	require.ErrorContains(t, report.Err(), "1 calls with an effect outside were made twice")
	require.ErrorContains(t, report.Err(), "2 % of the tokens were sampled again")
	data, err := json.Marshal(report)
	require.NoError(t, err)
	require.Contains(t, string(data), `"sampled_again_share":0.02`)
	report.Print(t.Output())
}
