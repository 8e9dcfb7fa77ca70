package producers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// Finding 13.2: waits may overlap, and the time of an episode, that of its journal and that of its record stand still while there is any,
// and no request or call works for it (16a.3).
func TestTheTimeOfAnEpisodeStandsStillWhileItWaits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		moves := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 30).Draw(r, "moves")
		synctest.Test(t, func(t *testing.T) {
			const limit = time.Hour
			ticket := &schemas.Ticket{ID: "t", Limits: schemas.Limits{Timeout: limit}}
			e := newEpisode(ticket, Environment{}, nil)
			e.keepJournal(newJournal(t.Context(), JournalConfig{}, nil, schemas.JournalRecord{}, nil, nil))
			defer e.journal.endLife()
			began := time.Now()
			ctx, cancel := e.limitAgent(t.Context())
			defer cancel()
			var waits, works []func()
			unclaimed, waited := false, time.Duration(0)
			for _, move := range moves {
				switch {
				case move == 0:
					waits = append(waits, e.HoldTime(""))
				case move == 1 && len(waits) > 0:
					waits[0]()
					waits = waits[1:]
				case move == 2:
					unclaimed = !unclaimed
					e.NoteUnclaimed(unclaimed)
				case move == 3:
					works = append(works, e.beginWork())
				case move == 4 && len(works) > 0:
					works[0]()
					works = works[1:]
				default:
					if pass(time.Second); (unclaimed || len(waits) > 0) && len(works) == 0 {
						waited += time.Second
					}
				}
				require.Equal(t, time.Since(began)-waited, e.journal.elapsed())
				deadline, known := ctx.Deadline()
				require.Equal(t, !unclaimed && len(waits) == 0 || len(works) > 0, known)
				if known {
					require.Equal(t, began.Add(limit+waited), deadline)
				}
			}
			e.NoteUnclaimed(false)
			for _, goOn := range append(waits, works...) {
				goOn()
			}
			require.Equal(t, waited, e.startedAt().Sub(began.UTC()))
			<-ctx.Done()
			require.Equal(t, limit+waited, time.Since(began))
			require.ErrorIs(t, context.Cause(ctx), errTimedOut)
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
		})
	})
}
