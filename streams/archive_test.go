package streams

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Invariant: once an archive's seat is taken, no word of an earlier archive counts.
func TestInvariantNoWordOfAnEarlierArchiveCounts(t *testing.T) {
	f := newFixture(t, true)
	at := func(sequence uint64) Kept { return Kept{Position: Position{Stream: "s", Sequence: sequence}} }
	first, err := f.attach(t).TakeArchive(f.ctx)
	require.NoError(t, err)
	require.NoError(t, first.Tell(f.ctx, at(7)))
	ended := make(chan error, 1)
	go func() { ended <- first.Watch(f.ctx) }()

	second, err := f.attach(t).TakeArchive(f.ctx)
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, ErrArchiveFenced, "the process before is told")
	_, kept, err := f.run.KeepState(f.ctx)
	require.NoError(t, err)
	require.Zero(t, kept.Sequence, "the store of the new process may be another")
	require.ErrorIs(t, first.Tell(f.ctx, at(9)), ErrArchiveFenced)
	require.NoError(t, second.Tell(f.ctx, at(3)))
	require.ErrorIs(t, first.Tell(f.ctx, at(9)), ErrArchiveFenced, "also at its next try")
	_, kept, err = f.run.KeepState(f.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, kept.Sequence)
	require.EqualValues(t, 2, kept.Epoch)

	f.restart(t)
	require.NoError(t, second.Tell(f.ctx, at(4)), "a restart forgets nothing")
	require.ErrorIs(t, first.Tell(f.ctx, at(9)), ErrArchiveFenced)
}

// A broker whose store is gone, or an older copy, knows no archive: the process that is there tells again.
func TestAnArchiveThatTheBrokerForgotTellsAgain(t *testing.T) {
	f := newFixture(t, true)
	seat, err := f.attach(t).TakeArchive(f.ctx)
	require.NoError(t, err)
	kv, err := f.run.js.KeyValue(f.ctx, f.run.names.control)
	require.NoError(t, err)
	require.NoError(t, kv.Purge(f.ctx, archiveKey))
	require.NoError(t, seat.Tell(f.ctx, Kept{Position: Position{Stream: "s", Sequence: 5}}))
	_, err = kv.Put(f.ctx, archiveKey, []byte("junk"))
	require.NoError(t, err)
	require.NoError(t, seat.Tell(f.ctx, Kept{Position: Position{Stream: "s", Sequence: 6}}))
	_, kept, err := f.run.KeepState(f.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 6, kept.Sequence)
}

// A trainer that was fenced asks for nothing; what the archive has told of another stream, or of before a loss, is not believed.
func TestOnlyTheRunsTrainerAsksAndOnlyItsStreamCounts(t *testing.T) {
	f := newFixture(t, true)
	zombie, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	heir, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	born := time.Unix(5, 0).UTC()
	request := &KeepRequest{Position: Position{Stream: "s", Created: born, Sequence: 9}, Losses: 1}
	require.ErrorIs(t, zombie.Run().AskToKeep(f.ctx, request), ErrFenced)
	require.NoError(t, heir.Run().AskToKeep(f.ctx, request))
	got, kept, err := f.run.KeepState(f.ctx)
	require.NoError(t, err)
	require.Equal(t, request, got)
	require.Nil(t, kept)
	require.Zero(t, kept.UpTo(request))
	for _, other := range []Kept{
		{Position: Position{Stream: "s", Created: born.Add(1), Sequence: 9}, Losses: 1},
		{Position: request.Position, Losses: 0},
		{Position: Position{Created: born, Sequence: 9}, Losses: 1},
	} {
		require.Zero(t, other.UpTo(request))
	}
	same := Kept{Position: request.Position, Losses: 1}
	require.EqualValues(t, 9, same.UpTo(request))
}

// Requests are followed from the one that stands, and over one that cannot be read.
func TestRequestsToTheArchiveAreFollowed(t *testing.T) {
	f := newFixture(t, true)
	kv, err := f.run.js.KeyValue(f.ctx, f.run.names.control)
	require.NoError(t, err)
	ask := func(sequence uint64) {
		require.NoError(t, f.run.AskToKeep(f.ctx, &KeepRequest{Position: Position{Stream: "s", Sequence: sequence}}))
	}
	ask(1)
	ctx, cancel := context.WithCancel(f.ctx)
	came, ended := make(chan uint64), make(chan error, 1)
	go func() {
		ended <- f.run.FollowKeepRequests(ctx, func(r *KeepRequest) error {
			came <- r.Sequence
			return nil
		})
	}()
	require.EqualValues(t, 1, <-came)
	_, err = kv.Put(f.ctx, keepKey, []byte("junk"))
	require.NoError(t, err)
	ask(2)
	require.EqualValues(t, 2, <-came)
	cancel()
	require.NoError(t, <-ended)
}
