package runfolder

import (
	"context"
	"errors"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Standing is how a run stands by its streams.
type Standing struct {
	Status
	// Trainer is the status by the trainer's events alone, also of a run that is paused or not up.
	Trainer Status
	History History
	// Control is nil before a trainer has begun; Manifest is nil before weights are published.
	Control  *schemas.Control
	Manifest *schemas.Manifest
	Counts   streams.Counts
	// Refused counts the newest messages of REJECTED by producer.
	Refused []ProducerRefusals
}

// standingEvents is how many of the newest events are read to know how a run stands.
const standingEvents = 20_000

// ReadStanding reads how a run stands from its streams. up reports whether a broker serves them; else they are read where they lie.
func ReadStanding(ctx context.Context, run *streams.Run, up bool, now time.Time) (*Standing, error) {
	out := &Standing{}
	var err error
	if out.Control, err = run.Control(ctx); err != nil && !errors.Is(err, streams.ErrNoControl) {
		return nil, err
	}
	if out.Manifest, err = run.LatestManifest(ctx); err != nil && !errors.Is(err, streams.ErrNoWeights) {
		return nil, err
	}
	if out.Counts, err = run.Counts(ctx); err != nil {
		return nil, err
	}
	if out.Refused, err = CountRefusals(ctx, run); err != nil && !errors.Is(err, streams.ErrDenied) {
		return nil, err
	}
	if err := run.PastEvents(ctx, standingEvents, out.History.Add); err != nil {
		return nil, err
	}
	out.Trainer = out.History.Status(now)
	out.Status = out.Trainer.withControl(out.Control)
	if !up {
		out.Status = out.Trainer.withoutBroker()
	}
	return out, nil
}
