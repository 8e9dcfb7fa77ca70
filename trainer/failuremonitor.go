package trainer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
)

// stuckSamples is how many samples in a row producers give up, with no trajectory accepted between them, until the run says that no episode
// succeeds.
const stuckSamples = 20

// failureMonitor counts the samples in a row that producers gave up.
type failureMonitor struct{ givenUp int }

// cutReason returns a producer's text as a message can have it: bounded, and without what moves a terminal's cursor.
func cutReason(text string) string {
	const most = 500
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	return text
}

// isRepeated reports whether a marker gives up no sample beyond those that had come or been given up: it ends at once, and not with its
// group.
func isRepeated(d *streams.Delivery, e batch.Effects) bool {
	settled := slices.ContainsFunc(e.Verdicts, func(v batch.Verdict) bool {
		return v.Sequence == d.Sequence && v.State == batch.Settled
	})
	return settled && !slices.ContainsFunc(e.Drops, func(drop batch.Drop) bool { return drop.Group.ID() == d.Closed.Group })
}

// reportFailures takes a delivery and its effects. It reports, at each doubling, that no episode succeeds, and fails where the
// configuration says so.
func (i *intake) reportFailures(d *streams.Delivery, e batch.Effects, accepted bool) error {
	f := &i.failures
	if accepted {
		f.givenUp = 0
	}
	if d.Closed == nil || d.Refused != "" || d.Closed.Why == schemas.WhyStale || d.Closed.Why == schemas.WhyCancelled ||
		strings.HasPrefix(d.Closed.Why, schemas.WhyNotRecorded) {
		return nil
	}
	g, open := i.issuer.open[d.Closed.Group]
	if !open || isRepeated(d, e) {
		return nil
	}
	before := f.givenUp
	f.givenUp += min(len(d.Closed.Cancelled), g.Ticket.GroupSize)
	if !crossedDoubling(before, f.givenUp, stuckSamples) {
		return nil
	}
	stuck := fmt.Errorf("%w: no episode succeeds: each of the newest %d samples was given up; the last by producer %s: %s",
		ErrStuck, f.givenUp, cutReason(d.Closed.Producer), cutReason(d.Closed.Why))
	version := i.assembler.Version()
	i.deps.Log.Error(stuck.Error(), "step", version+1)
	i.deps.Observer(schemas.Event{
		Run: i.deps.Stream.Name(), Type: schemas.EventDropped, At: i.deps.Now().UTC(), Role: "trainer", Step: version + 1, PolicyVersion: version,
		Message: stuck.Error(),
	})
	if i.cfg.StopWhenStuck {
		return stuck
	}
	return nil
}
