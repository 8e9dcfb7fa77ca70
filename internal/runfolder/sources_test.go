package runfolder

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Every ticket counts for its source, once: the sums over sources are those of the accounting.
func TestTicketsBySourceSumToTheAccounting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawRun(t)
		n++
		x := indexOf(t, filepath.Join(dir, fmt.Sprint(n)), s.records)
		want := map[string]map[string]int{}
		for id, fate := range s.fates {
			of := want[s.sources[id]]
			if of == nil {
				of = map[string]int{}
				want[s.sources[id]] = of
			}
			of[fate]++
			of["issued"]++
		}
		all, _ := x.Sources(s.size)
		require.Len(t, all, len(want))
		share, trained := 0.0, 0.0
		for _, got := range all {
			of := want[got.Name]
			require.Equal(t, SourceIssued{
				Name: got.Name, Issued: of["issued"], Underway: of["underway"], Lost: of["lost"] + of["closed"], Refused: of["refused/stale"], Late: of["refused/stale"],
				Dropped: of["dropped/zero_variance"], Flat: of["dropped/zero_variance"], Others: of["baseline"] + of["passed_over"], Trained: of["trained"],
				Share: got.Share, TrainedShare: got.TrainedShare, Ratio: got.Ratio, Starves: got.Starves,
			}, got)
			require.Equal(t, got.Issued, got.Underway+got.Lost+got.Refused+got.Dropped+got.Others+got.Trained)
			share, trained = share+got.Share, trained+got.TrainedShare
		}
		for _, sum := range []float64{share, trained} {
			require.True(t, sum == 0 || 0.999 < sum && sum < 1.001, "%v", sum)
		}
	})
}

// starvedRun is the record of a run that drops almost every group of the source "hard".
func starvedRun(reason schemas.Reason) []checkpoint.Record {
	var all []checkpoint.Record
	cursor := uint64(0)
	for step := range int64(10) {
		r := checkpoint.Record{Step: step + 1}
		for i := range 8 {
			id := batch.GroupID(cursor, 0)
			var tickets []string
			for s := range 4 {
				tickets = append(tickets, batch.TicketID(cursor, 0, s))
			}
			cursor++
			source := "easy"
			if i >= 4 {
				source = "hard"
			}
			if source == "hard" && (step > 0 || i > 5) {
				for s, ticket := range tickets {
					r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: ticket, Sequence: 10*cursor + uint64(s), Reason: reason})
				}
				r.Dropped = append(r.Dropped, checkpoint.RecordDrop{Group: id, Cursor: cursor - 1, Reason: schemas.ReasonIncomplete, Size: 4, Source: source})
				continue
			}
			g := checkpoint.RecordGroup{Group: id, Size: 4, Source: source}
			for s, ticket := range tickets {
				g.Members = append(g.Members, checkpoint.RecordMember{ID: ticket, Sequence: 10*cursor + uint64(s)})
			}
			r.Groups = append(r.Groups, g)
		}
		r.AddOpen(batch.GroupID(1000+cursor, 0), "hard")
		all = append(all, r)
	}
	return all
}

// A source that a filter keeps from training is named, with the filter and what to do; one that is treated like the others is not, and
// neither is one of which there are too few tickets to say.
func TestAFilterThatStarvesASourceIsNamed(t *testing.T) {
	t.Parallel()
	for reason, do := range map[schemas.Reason]string{
		schemas.ReasonStale:        "152 of its 160 tickets that ended were refused as stale: raise trainer.eta",
		schemas.ReasonZeroVariance: "152 of its 160 tickets that ended were dropped because all rewards",
		schemas.ReasonPoisoned:     "152 of its 160 tickets that ended were refused: the accounting",
	} {
		all, starved := indexOf(t, t.TempDir(), starvedRun(reason)).Sources(4)
		require.Len(t, all, 2)
		require.Equal(t, "hard", all[1].Name)
		require.Equal(t, []int{164, 4, 8}, []int{all[1].Issued, all[1].Underway, all[1].Trained})
		require.InDelta(t, 0.5, all[1].Share, 1e-9)
		require.InDelta(t, 8.0/168, all[1].TrainedShare, 1e-9)
		require.InDelta(t, 16.0/168, all[1].Ratio, 1e-9)
		require.True(t, all[1].Starves)
		require.False(t, all[0].Starves)
		require.Len(t, starved, 1)
		require.Contains(t, starved[0], "hard is 50 % of the tickets that ended and 5 % of what was trained on: "+do)
	}
	few, starved := indexOf(t, t.TempDir(), starvedRun(schemas.ReasonStale)[:1]).Sources(4)
	require.Len(t, few, 2)
	require.Empty(t, starved)
}

// The record of a build that noted no sources is read as before: all of its tickets stand under one name.
func TestARecordWithoutSourcesIsRead(t *testing.T) {
	t.Parallel()
	old := starvedRun(schemas.ReasonStale)
	for i := range old {
		old[i].OpenSources = nil
		for k := range old[i].Groups {
			old[i].Groups[k].Source = ""
		}
		for k := range old[i].Dropped {
			old[i].Dropped[k].Source = ""
		}
	}
	x := indexOf(t, t.TempDir(), old)
	all, starved := x.Sources(4)
	require.Len(t, all, 1)
	require.Empty(t, all[0].Name)
	require.Equal(t, x.Accounting(4).Issued, all[0].Issued)
	require.InDelta(t, 1, all[0].Ratio, 1e-9)
	require.Empty(t, starved)
}
