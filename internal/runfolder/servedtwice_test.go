package runfolder

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Finding 4 of the ninth reader: of a ticket that two producers served, which is how a kill between a publication and its acknowledgement ends,
// the page, weir trajectory and the tables gave the second, refused trajectory for the one that was trained on, or no numbers.
func TestOfATicketThatWasServedTwiceTheTrajectoryThatAStepUsedIsShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Unix(1_800_000_000, 0).UTC()
	served := func(answer string, reward float64) *schemas.Trajectory {
		return &schemas.Trajectory{
			Run: "r", ID: "g000004-a0-0", Group: "g000004-a0", Cursor: 4, GroupSize: 1,
			Producer: answer, Answer: answer, Reward: reward, Stop: schemas.StopAnswer, StartedAt: at, FinishedAt: at,
			Segments: []schemas.Segment{{Temperature: 1, Tokens: []int32{1, 2}, ActionMask: []uint8{0, 1}, Logprobs: []float32{0, -1}, Versions: []int32{-1, 0}}},
		}
	}
	first, second := served("first", 1), served("second", 0)
	log := slog.New(slog.DiscardHandler)
	w, err := archive.Open(filepath.Join(dir, CheckpointsFolder, archive.Folder), archive.DefaultConfig(), log)
	require.NoError(t, err)
	origin := func(uint64) archive.Origin { return archive.Origin{} }
	for step := range int64(2) { // trained on twice, as with trainer.reuse 2
		b := &batch.Batch{Version: step, Groups: []batch.Taken{{Members: []batch.Member{{Trajectory: first, Sequence: 11, Return: 1}}}}}
		rows := &batch.Rows{Trajectory: []int{0}, Offsets: []int{0, 2}, Mask: []uint8{0, 1}}
		tokens := &learner.Tokens{Rows: rows, Advantages: []float64{0, float64(step + 1)}, Start: []float64{0, -1}, Last: []float64{0, -1}}
		w.Step(step+1, b, tokens, origin, at)
	}
	w.End(second, 19, archive.Origin{}, schemas.ReasonDuplicate, "its sample had come before", 3, at)
	require.NoError(t, w.Close())
	group := checkpoint.RecordGroup{Group: "g000004-a0", Size: 1, Members: []checkpoint.RecordMember{{ID: first.ID, Sequence: 11, Reward: 1}}}
	writeLines(t, filepath.Join(dir, CheckpointsFolder, checkpoint.RecordFile),
		checkpoint.Record{Step: 1, Groups: []checkpoint.RecordGroup{group}, Use: 1}, checkpoint.Record{Step: 2, Groups: []checkpoint.RecordGroup{group}, Use: 2},
		checkpoint.Record{Step: 3, Rejected: []checkpoint.RecordRejection{{ID: first.ID, Sequence: 19, Reason: schemas.ReasonDuplicate}}})
	f := Open(Run{Name: "r", Dir: dir})
	defer f.Close()
	require.NoError(t, f.Refresh())

	entries := f.Steps.Find(first.ID)
	require.Len(t, entries, 3)
	require.EqualValues(t, 11, DecidingSequence(entries))
	for step := range int64(2) {
		numbers, err := f.Archive.Numbers(first.ID, step+1)
		require.NoError(t, err)
		require.Len(t, numbers, 1)
		require.Equal(t, []float32{0, float32(step + 1)}, numbers[0].Advantages)
	}
	require.Equal(t, "first", f.Archive.FactsOf(first.ID, 11).Answer)
	f.Archive.AddFacts(entries)
	require.Equal(t, []string{"first", "first", "second"}, []string{entries[0].Facts.Answer, entries[1].Facts.Answer, entries[2].Facts.Answer})
	_, err = f.FindTrajectory(t.Context(), entries, first.ID)
	require.ErrorIs(t, err, ErrNotKept, "the batch is gone: the second trajectory is no answer")
	kept, err := f.Archived(first.ID, 19)
	require.NoError(t, err)
	require.Equal(t, "second", kept.Answer)
	b := f.Archive.Bias()
	require.Equal(t, [2]int{1, 1}, [2]int{b.Came, b.Trained})
	groups := f.Groups(Query{Step: -1, Limit: 9})
	require.Len(t, groups.Rows, 1)
	require.Equal(t, "trained", groups.Rows[0].Fate)
	require.EqualValues(t, 1, groups.Rows[0].Step)
	require.Equal(t, "trained/first", fmt.Sprintf("%s/%s", groups.Rows[0].Members[0].Fate, groups.Rows[0].Members[0].Answer))
}

// A refused message whose id is no ticket's is a row of its own, and was shown as the first ticket's, whose trajectory then counted as not kept.
func TestAMessageWithoutATicketsIdIsNoRowOfATicket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLines(t, filepath.Join(dir, CheckpointsFolder, checkpoint.RecordFile), checkpoint.Record{Step: 1, Rejected: []checkpoint.RecordRejection{
		{ID: batch.TicketID(0, 0, 0), Sequence: 1, Reason: schemas.ReasonZeroVariance}, {ID: "somebody's", Sequence: 99, Reason: schemas.ReasonMalformed},
	}})
	f := Open(Run{Name: "r", Dir: dir})
	defer f.Close()
	require.NoError(t, f.Refresh())
	entries := f.Steps.Find(batch.TicketID(0, 0, 0))
	require.Len(t, entries, 1)
	require.EqualValues(t, 1, DecidingSequence(entries))
	odd := f.Steps.Find("somebody's")
	require.Len(t, odd, 1)
	require.EqualValues(t, 99, odd[0].Sequence)
}
