package producers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// recordingFunc is a recording that is one function.
type recordingFunc func(*schemas.Ticket) (*schemas.Trajectory, error)

func (f recordingFunc) Recall(_ context.Context, t *schemas.Ticket) (*schemas.Trajectory, error) {
	return f(t)
}

// recordedEpisode is an episode of another run, sampled by its versions 0 to 2.
func recordedEpisode(t *testing.T) *schemas.Trajectory {
	t.Helper()
	ticket := newTicket(7)
	ticket.Run, ticket.Task, ticket.Sample, ticket.GroupSize = "old", "other", 3, 8
	played, _, err := producers.Rollout(t.Context(), ticket, newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines}))
	require.NoError(t, err)
	played.Producer, played.Forked = "old-producer", &schemas.Forked{Parent: "g7-0-1", Turns: 1}
	return played
}

// Invariant: a recorded answer has its ticket's identity, its ticket's version at each sampled token, and all else as it was recorded.
func TestInvariantARecordedAnswerIsTheTicketsAndAsItWasRecorded(t *testing.T) {
	was := recordedEpisode(t)
	require.Equal(t, int64(2), was.NewestVersion())
	ticket := newTicket(1)
	ticket.PolicyVersion, ticket.GroupSize = 9, 4
	s := newStream(ticket)
	p := start(t, config(), s, producers.Environment{Recording: recordingFunc(func(asked *schemas.Ticket) (*schemas.Trajectory, error) {
		require.Equal(t, ticket.ID, asked.ID)
		return recordedEpisode(t), nil
	})})
	<-s.idle
	p.stop()
	require.Len(t, s.published, 1)
	got := s.published[0]
	require.NoError(t, got.Validate())
	require.Equal(t, &schemas.Recorded{Run: "old", ID: "g7-0-0", Oldest: 0, Newest: 2}, got.Recorded)
	require.Equal(t, []any{"r", ticket.ID, ticket.Group, uint64(1), 0, 4, "t", "p", "2n", "p"},
		[]any{got.Run, got.ID, got.Group, got.Cursor, got.Sample, got.GroupSize, got.Task, got.PromptID, got.Source, got.Producer})
	require.Nil(t, got.Forked)
	require.Equal(t, int64(9), got.OldestVersion())
	require.Equal(t, int64(9), got.NewestVersion())
	for i := range got.Segments {
		now, before := &got.Segments[i], &was.Segments[i]
		for k, v := range before.Versions {
			require.Equal(t, v == schemas.NoVersion, now.Versions[k] == schemas.NoVersion)
		}
		now.Versions = before.Versions
	}
	require.Equal(t, was.Segments, got.Segments, "tokens, masks, log-probabilities and temperature")
	require.Equal(t, was.Reward, got.Reward)
	require.Equal(t, was.Rewards, got.Rewards)
	require.Len(t, got.Turns, len(was.Turns))
	require.Equal(t, was.Stop, got.Stop)
	require.Equal(t, was.Answer, got.Answer)
}

// A sample that was not recorded is closed at once; another failure is tried again; a failure that is to end the producer ends it, and its
// ticket is another producer's.
func TestARecordingClosesTriesAgainOrStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s := newStream(newTicket(0), newTicket(1))
		cfg := config()
		cfg.Concurrency = 1
		p := start(t, cfg, s, producers.Environment{Recording: recordingFunc(func(asked *schemas.Ticket) (*schemas.Trajectory, error) {
			if asked.Cursor == 0 {
				return nil, fmt.Errorf("%w: group g0 has none", producers.ErrNotRecorded)
			}
			if tries++; tries == 1 {
				return nil, errors.New("the disk is away")
			}
			return recordedEpisode(t), nil
		})})
		<-s.idle
		p.stop()
		require.Equal(t, []string{newTicket(1).ID}, ids(s.published))
		require.Len(t, s.returned, 1)
		require.Len(t, s.closed, 1)
		require.Equal(t, newTicket(0).Group, s.closed[0].Group)
		require.Equal(t, schemas.WhyNotRecorded+": group g0 has none", s.closed[0].Why)
	})

	s := newStream(newTicket(0))
	damaged := errors.New("segment 7 is damaged")
	err := producers.Run(t.Context(), config(), producers.Deps{Stream: s, Environments: map[string]producers.Environment{
		"t": {Recording: recordingFunc(func(*schemas.Ticket) (*schemas.Trajectory, error) {
			return nil, fmt.Errorf("%w: %w", producers.ErrStops, damaged)
		})},
	}})
	require.ErrorIs(t, err, damaged)
	require.Empty(t, s.done)
	require.Empty(t, s.closed)
	require.Empty(t, s.published)
}
