package producers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Recording answers tickets with trajectories that were recorded before: nothing is sampled, and no tool runs. It is used by many tickets
// at once.
type Recording interface {
	// Recall returns the trajectory that answers a ticket, with the run, the id and the versions that it was recorded with. The caller may
	// change it. [ErrNotRecorded], wrapped, closes the ticket's sample; [ErrStops], wrapped, ends the producer; after any other error the
	// ticket is tried again.
	Recall(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, error)
}

// ErrNotRecorded is returned, wrapped, by a [Recording] that has no trajectory for a ticket.
var ErrNotRecorded = errors.New(schemas.WhyNotRecorded)

// ErrStops is returned, wrapped, by a [Recording] whose failure is to end the producer and not a sample alone: [Run] returns it, and the
// ticket goes back.
var ErrStops = errors.New("the producer stops")

// recallTrajectory answers a ticket from a recording.
//
// Invariant: a recorded answer has its ticket's identity, its ticket's version at each sampled token, and all else as it was recorded.
func recallTrajectory(ctx context.Context, ticket *schemas.Ticket, recording Recording) (t *schemas.Trajectory, err error) {
	began := time.Now().UTC()
	err = guardPart(fmt.Sprintf("recording %T", recording), func() (err error) {
		t, err = recording.Recall(ctx, ticket)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Recorded = &schemas.Recorded{Run: t.Run, ID: t.ID, Oldest: t.OldestVersion(), Newest: t.NewestVersion()}
	for i := range t.Segments {
		s := &t.Segments[i]
		s.Versions = slices.Clone(s.Versions)
		for k, v := range s.Versions {
			if v != schemas.NoVersion {
				s.Versions[k] = int32(ticket.PolicyVersion)
			}
		}
	}
	t.Run, t.ID, t.Group, t.Cursor, t.Attempt, t.Sample = ticket.Run, ticket.ID, ticket.Group, ticket.Cursor, ticket.Attempt, ticket.Sample
	t.GroupSize, t.Task, t.PromptID, t.Source = ticket.GroupSize, ticket.Task, ticket.Prompt.ID, ticket.Prompt.Source
	// A fork's first turns are its own here: its parent may be in no group of this run.
	t.Forked, t.StartedAt, t.FinishedAt = nil, began, time.Now().UTC()
	return t, nil
}
