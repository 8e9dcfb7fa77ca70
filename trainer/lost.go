package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// idleReport is the time without a delivery after which the log reports it; it does so again each time that the time has doubled.
const idleReport = time.Minute

// idleTimer measures how long nothing has come from producers.
type idleTimer struct {
	// since is when the last delivery came, reported the time without a delivery at the last report.
	since    time.Time
	reported time.Duration
}

// restart begins to count anew.
func (q *idleTimer) restart(now time.Time) { *q = idleTimer{since: now} }

// reportDue reports whether it is time to log that nothing has come for this long.
func (q *idleTimer) reportDue(lasted time.Duration) bool {
	if lasted < max(idleReport, 2*q.reported) {
		return false
	}
	q.reported = lasted
	return true
}

// giveUpLost ends the wait for samples that can no longer come, when nothing comes: no ticket is outstanding, and the stream holds no
// unread message. A sample is lost when its ticket was ended and its trajectory is not stored: by a producer whose trajectories the feed
// refuses, or by another holder of a producer's key. The groups are judged on the samples they have; unusable groups are issued again,
// under ids that the broker has not seen.
//
// A trainer that is killed before the next checkpoint comes to the same end when it has read the stream again.
func (i *intake) giveUpLost(ctx context.Context) error {
	awaited := i.assembler.Awaited()
	if awaited == 0 || len(i.issuer.pending) > 0 {
		return nil
	}
	why, err := i.explainLoss(ctx, awaited)
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
	i.idleTimer.restart(i.deps.Now())
	e := i.assembler.GiveUp()
	i.endings.addLost(e.Lost, i.issuer.open, i.deps.Now())
	i.refusals[schemas.ReasonLost] += int64(len(e.Lost))
	i.deps.Log.Warn("samples are lost and given up; look at the rejected messages (weir inspect rejected) for producers of another "+
		"version, and at who else has a producer's key", "why", why, "step", i.assembler.Version()+1, "samples", len(e.Lost), "first", e.Lost[0],
		"groups_dropped", len(e.Drops))
	if err := i.applyEffects(ctx, e); err != nil {
		return err
	}
	return i.planTickets(ctx)
}

// explainLoss returns the reason why no ticket will bring an awaited sample, "" where a ticket may.
//
// The order matters: a producer ends its ticket after its trajectory is stored, so that a trajectory stored by a ticket that
// is not counted here is seen by the later look at the stream.
func (i *intake) explainLoss(ctx context.Context, awaited int) (why string, err error) {
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
	lasted := i.deps.Now().Sub(i.idleTimer.since)
	if i.idleTimer.reportDue(lasted) {
		i.deps.Log.Warn("nothing comes from producers", "for", lasted.Round(time.Second), "step", i.assembler.Version()+1, "samples_awaited", awaited,
			"tickets_waiting", counts.Waiting, "tickets_leased", tickets-counts.Waiting)
	}
	if limit := i.issuer.silenceLimit(); counts.Waiting > 0 || limit == 0 || lasted < limit {
		return "", nil
	}
	return "nothing came for trainer.group_timeout, and each ticket is leased", nil
}
