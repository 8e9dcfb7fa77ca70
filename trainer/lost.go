package trainer

import (
	"context"
	"fmt"
	"time"
)

// tellAfter is how long nothing comes before that is worth a word; then again each time that has doubled.
const tellAfter = time.Minute

// giveUp ends the wait for samples that cannot come any more, when nothing comes: no ticket is outstanding, and the stream
// holds nothing that was not looked at. A sample is lost when its ticket was ended and its trajectory is not stored: by a
// producer whose trajectories the feed refuses, or by whoever else has a producer's key. The groups are judged on what they
// have; those that cannot be used are issued again, under ids that the broker has not seen.
//
// A trainer that is killed before the next checkpoint comes to the same end when it has read the stream again.
func (t *trainer) giveUp(ctx context.Context) error {
	awaited := t.assembler.Awaited()
	if awaited == 0 || len(t.issuer.pending) > 0 {
		return nil
	}
	// The order matters: a producer ends its ticket after its trajectory is stored, so that what was stored by a ticket that
	// is not counted here is seen by the look at the stream.
	tickets, err := t.deps.Stream.OutstandingTickets(ctx)
	if err != nil {
		return fmt.Errorf("count the tickets: %w", err)
	}
	quiet, why := t.deps.Now().Sub(t.quiet), "no ticket is outstanding and no trajectory on its way"
	if tickets > 0 {
		waiting, err := t.deps.Stream.WaitingTickets(ctx)
		if err != nil {
			return fmt.Errorf("count the tickets: %w", err)
		}
		if quiet >= max(tellAfter, 2*t.told) {
			t.told = quiet
			t.deps.Log.Warn("nothing comes from producers", "for", quiet.Round(time.Second), "step", t.step+1, "samples_awaited", awaited,
				"tickets_waiting", waiting, "tickets_leased", tickets-waiting)
		}
		if limit := t.issuer.timeout(); waiting > 0 || limit == 0 || quiet < limit {
			return nil
		}
		why = "nothing came for trainer.group_timeout, and each ticket is leased"
	}
	behind, err := t.feed.Behind(ctx)
	if err != nil {
		return fmt.Errorf("look for more trajectories: %w", err)
	}
	if behind {
		return nil
	}
	t.quiet, t.told = t.deps.Now(), 0
	e := t.assembler.GiveUp()
	t.now.refusals[string(ReasonLost)] += int64(len(e.Lost))
	t.deps.Log.Warn("samples are lost and given up; look at the rejected messages (weir inspect rejected) for producers of another "+
		"version, and at who else has a producer's key", "why", why, "step", t.step+1, "samples", len(e.Lost), "first", e.Lost[0],
		"groups_dropped", len(e.Drops))
	t.issuer.apply(e)
	if err := t.dispose(ctx, e.Verdicts); err != nil {
		return err
	}
	return t.plan(ctx)
}
