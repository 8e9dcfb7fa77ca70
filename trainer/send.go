package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/streams"
)

// How tickets are sent.
const (
	// issueTogether is how many are sent at once.
	issueTogether = 64
	// issuePatience is how long they may take: then the ticket stream is full, or the broker away, and the rest waits.
	issuePatience = time.Second
	// issueAfter is how many messages are read before the rest is sent. It is sent when nothing comes, too.
	issueAfter = 64
)

// issueUnlessPostponed sends the tickets that wait, unless they are postponed.
func (i *intake) issueUnlessPostponed(ctx context.Context) error {
	if i.issuer.postponed == 0 {
		if err := i.Issue(ctx); err != nil {
			return err
		}
	}
	i.issuer.postponed = max(0, i.issuer.postponed-1)
	return nil
}

// Issue sends the tickets that are planned, as many as the ticket stream takes. The others stay planned: a trainer that
// waited for room would read nothing, so that trajectories fill their stream, no producer can deliver one, and no ticket is
// done.
func (i *intake) Issue(ctx context.Context) error {
	for len(i.issuer.pending) > 0 {
		some := i.issuer.pending[:min(issueTogether, len(i.issuer.pending))]
		patient, cancel := context.WithTimeout(ctx, issuePatience)
		err := i.deps.Stream.Issue(patient, some...)
		late := patient.Err() != nil
		cancel()
		switch {
		case err == nil:
			i.issuer.pending = i.issuer.pending[len(some):]
		case late && ctx.Err() == nil && !errors.Is(err, streams.ErrFenced):
			i.deps.Log.Debug("tickets wait for room", "tickets", len(i.issuer.pending), "err", err)
			i.issuer.postponed = issueAfter
			return nil
		default:
			return fmt.Errorf("issue %d tickets: %w", len(i.issuer.pending), err)
		}
	}
	return nil
}
