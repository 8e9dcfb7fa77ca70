package trainer

import (
	"context"
	"fmt"
)

// giveUp ends the wait for samples that cannot come any more, when nothing comes: no ticket is outstanding, and the stream
// holds nothing that was not looked at. A sample is lost when its ticket was ended and its trajectory is not stored: by a
// producer of another wire version, whose trajectories the feed refuses, or by whoever else has a producer's key. The
// groups are judged on what they have; those that cannot be used are issued again, under ids that the broker has not seen.
//
// A trainer that is killed before the next checkpoint comes to the same end when it has read the stream again.
func (t *trainer) giveUp(ctx context.Context) error {
	if t.assembler.Awaited() == 0 || len(t.issuer.pending) > 0 {
		return nil
	}
	// The order matters: a producer ends its ticket after its trajectory is stored, so that what was stored by a ticket that
	// is not counted here is seen by the look at the stream.
	tickets, err := t.deps.Stream.OutstandingTickets(ctx)
	if err != nil {
		return fmt.Errorf("count the tickets: %w", err)
	}
	if tickets > 0 {
		return nil
	}
	behind, err := t.feed.Behind(ctx)
	if err != nil {
		return fmt.Errorf("look for more trajectories: %w", err)
	}
	if behind {
		return nil
	}
	return t.giveUpAll(ctx, "no ticket is outstanding and no trajectory on its way")
}

// giveUpAll gives up what is awaited and plans what follows.
func (t *trainer) giveUpAll(ctx context.Context, why string) error {
	e := t.assembler.GiveUp()
	t.now.refusals[string(ReasonLost)] += int64(len(e.Lost))
	t.deps.Log.Warn("samples are lost and given up; look at the rejected messages (weir inspect rejected) for producers of another "+
		"version, and at who else has a producer's key", "why", why, "step", t.step+1, "samples", len(e.Lost), "first", e.Lost[0],
		"groups_issued_again", len(e.Drops))
	t.issuer.apply(e)
	if err := t.dispose(ctx, e.Verdicts); err != nil {
		return err
	}
	return t.plan(ctx)
}
