package command

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/lab/episodes"
)

// The same tickets are played on 1, 2 and 8 producers and engines, left alone, and on 2 and 8 whose producers are killed in the middle of
// episodes: each ticket gives the same trajectory, token by token, and no call with an effect outside is made twice. In full these are 1,000
// episodes of either engine.
func TestTheSameTicketGivesTheSameEpisodeAfterKills(t *testing.T) {
	c := episodes.Default()
	c.Episodes, c.Slots, c.Tool, c.Kill, c.Lease = 24, 4, 20*time.Millisecond, 700*time.Millisecond, time.Second
	if fulltest.Enabled() {
		c.Episodes, c.Slots, c.Tool, c.Kill, c.Lease = 1000, 16, 40*time.Millisecond, 2*time.Second, 2*time.Second
	}
	for _, c.Engine = range []string{episodes.EngineStandIn, episodes.EngineNative} {
		t.Run(c.Engine, func(t *testing.T) {
			same, err := episodes.PlaySame(t.Context(), c, []string{program(t), episodesProducer}, t.TempDir())
			require.NoError(t, err)
			same.Print(t.Output())
			require.NoError(t, same.Err())
			require.Len(t, same.Shapes, 5)
			require.Equal(t, c.Episodes, same.Shapes[0].Played.Trained)
		})
	}
}

// A ticket that gives another trajectory, is lost, or pays twice is named.
func TestTheReportOfTheSameEpisodesNamesWhatDiffers(t *testing.T) {
	same := &episodes.Same{Config: episodes.Config{Episodes: 2}, Shapes: []episodes.Shape{
		{Producers: 1, Played: &episodes.Played{Trained: 2}},
		{Producers: 2, Played: &episodes.Played{Trained: 1, Kills: 3, Closed: map[string]int{"cut": 1}}},
	}}
	require.NoError(t, same.Err())
	same.Shapes = append(same.Shapes,
		episodes.Shape{Producers: 2, Played: &episodes.Played{Trained: 1, Closed: map[string]int{"cut": 1}}},
		episodes.Shape{Producers: 8, Played: &episodes.Played{Trained: 1, Kills: 1, OutsideTwice: 4}, Other: 3},
	)
	for _, want := range []string{
		"2 producers, 0 kills: 1 trajectories and 1 closed samples of 2 tickets", "8 producers, 1 kills: 3 trajectories are others",
		"1 trajectories and 0 closed samples of 2", "4 calls with an effect outside were made twice",
	} {
		require.ErrorContains(t, same.Err(), want)
	}
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
