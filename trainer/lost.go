package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// quietReport is after how long without a delivery the log says so; then again each time that it has doubled.
const quietReport = time.Minute

// quiet is how long nothing has come from producers.
type quiet struct {
	// since is when the last delivery came, reported for how long there had been none when the log last said so.
	since    time.Time
	reported time.Duration
}

// end begins to count anew.
func (q *quiet) end(now time.Time) { *q = quiet{since: now} }

// due says whether the log should say that nothing has come for this long.
func (q *quiet) due(lasted time.Duration) bool {
	if lasted < max(quietReport, 2*q.reported) {
		return false
	}
	q.reported = lasted
	return true
}

// giveUp ends the wait for samples that cannot come any more, when nothing comes: no ticket is outstanding, and the stream
// holds no message that was not looked at. A sample is lost when its ticket was ended and its trajectory is not stored: by a
// producer whose trajectories the feed refuses, or by whoever else has a producer's key. The groups are judged on the
// samples they have; unusable groups are issued again, under ids that the broker has not seen.
//
// A trainer that is killed before the next checkpoint comes to the same end when it has read the stream again.
func (i *intake) giveUp(ctx context.Context) error {
	awaited := i.assembler.Awaited()
	if awaited == 0 || len(i.issuer.pending) > 0 {
		return nil
	}
	why, err := i.whyLost(ctx, awaited)
	if err != nil || why == "" {
		return err
	}
	behind, err := i.feed.Behind(ctx)
	if err != nil {
		return fmt.Errorf("look for more trajectories: %w", err)
	}
	if behind {
		return nil
	}
	i.quiet.end(i.deps.Now())
	e := i.assembler.GiveUp()
	i.refusals[schemas.ReasonLost] += int64(len(e.Lost))
	i.deps.Log.Warn("samples are lost and given up; look at the rejected messages (weir inspect rejected) for producers of another "+
		"version, and at who else has a producer's key", "why", why, "step", i.assembler.Version()+1, "samples", len(e.Lost), "first", e.Lost[0],
		"groups_dropped", len(e.Drops))
	if err := i.apply(ctx, e); err != nil {
		return err
	}
	return i.plan(ctx)
}

// whyLost says why no ticket will bring a sample that is awaited, "" where a ticket may.
//
// The order matters: a producer ends its ticket after its trajectory is stored, so that a trajectory stored by a ticket that
// is not counted here is seen by the later look at the stream.
func (i *intake) whyLost(ctx context.Context, awaited int) (why string, err error) {
	tickets, err := i.deps.Stream.OutstandingTickets(ctx)
	if err != nil {
		return "", fmt.Errorf("count the tickets: %w", err)
	}
	if tickets == 0 {
		return "no ticket is outstanding and no trajectory on its way", nil
	}
	counts, err := i.deps.Stream.TicketCounts(ctx)
	if err != nil {
		return "", fmt.Errorf("count the tickets: %w", err)
	}
	lasted := i.deps.Now().Sub(i.quiet.since)
	if i.quiet.due(lasted) {
		i.deps.Log.Warn("nothing comes from producers", "for", lasted.Round(time.Second), "step", i.assembler.Version()+1, "samples_awaited", awaited,
			"tickets_waiting", counts.Waiting, "tickets_leased", tickets-counts.Waiting)
	}
	if limit := i.issuer.timeout(); counts.Waiting > 0 || limit == 0 || lasted < limit {
		return "", nil
	}
	return "nothing came for trainer.group_timeout, and each ticket is leased", nil
}
