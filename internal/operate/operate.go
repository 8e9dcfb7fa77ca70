// Package operate has the acts of an operator on a run that goes on: pause it, drain it, move the bounds of its staleness, and
// set the limits of its episodes. Each act
// changes the run's control, and is told as an event; what the trainer adopts stands in the record of its next step.
package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// EventControl is the type of the event that tells of an act.
const EventControl schemas.EventType = "control"

// Act is a change of a run's control. What is nil stays.
type Act struct {
	// Paused stops producers from taking tickets; running rollouts go on.
	Paused *bool `json:"paused,omitempty"`
	// Draining asks every role to finish its work and to stop. It cannot be taken back: the same command goes on with the run.
	Draining *bool `json:"draining,omitempty"`
	// Eta is the staleness bound and Depth the pipeline depth, in versions; they hold from the trainer's next step.
	Eta   *int `json:"eta,omitempty"`
	Depth *int `json:"depth,omitempty"`
	// Limits are those of episodes; tickets that are issued from the trainer's next step on carry them.
	Limits *Limits `json:"limits,omitempty"`
}

// mostEta is a bound that no run needs to go beyond.
const mostEta = 1000

// Validate reports every fault.
func (a Act) Validate() error {
	var faults []error
	if a == (Act{}) {
		faults = append(faults, errors.New("nothing is to be changed: want paused, draining, eta, depth or limits"))
	}
	if a.Draining != nil && !*a.Draining {
		faults = append(faults, errors.New("draining: false: a drain cannot be taken back; the command that began the run goes on with it"))
	}
	if a.Eta != nil {
		faults = append(faults, check.Between("eta", *a.Eta, 0, mostEta))
	}
	if a.Depth != nil {
		faults = append(faults, check.Between("depth", *a.Depth, 0, mostEta))
	}
	if a.Limits != nil {
		faults = append(faults, check.That(!a.Limits.isEmpty(), "limits", "nothing is to be changed: want %s, or configured", limitKeys))
		faults = append(faults, check.Section("limits", a.Limits.validateValues()))
	}
	return check.All(faults...)
}

// Run is the part of a *streams.Run that an act needs.
type Run interface {
	Name() string
	UpdateControl(ctx context.Context, change func(now *schemas.Control) *schemas.Control) error
	Emit(ctx context.Context, event *schemas.Event) error
}

// ErrNotBegun is returned where no trainer has told the run's bounds yet.
var ErrNotBegun = errors.New("no trainer has begun the run yet: nothing can be changed")

// Done is the result of an act.
type Done struct {
	// Changes say each change in words, none where everything was so already.
	Changes []string `json:"changes"`
	// Told says that the event was stored: nothing depends on it.
	Told    bool             `json:"told"`
	Control *schemas.Control `json:"control"`
}

// Do changes the run's control and tells of it. by names the operator, for the event.
func Do(ctx context.Context, run Run, a Act, by string, now time.Time) (*Done, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	done := &Done{}
	var fault error
	err := run.UpdateControl(ctx, func(c *schemas.Control) *schemas.Control {
		done.Changes, done.Control, fault = []string{}, nil, nil
		if c == nil {
			fault = ErrNotBegun
			return nil
		}
		next := *c
		if fault = a.applyAct(&next, done); fault != nil {
			return nil
		}
		done.Control = &next
		if len(done.Changes) == 0 {
			return nil
		}
		next.At = now.UTC()
		return &next
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	if len(done.Changes) > 0 {
		event := &schemas.Event{
			Run: run.Name(), Type: EventControl, At: now.UTC(), Role: "operator", Worker: by, PolicyVersion: done.Control.PolicyVersion,
			Message: strings.Join(done.Changes, "; "),
		}
		done.Told = run.Emit(ctx, event) == nil
	}
	return done, nil
}

// applyAct changes a control.
func (a Act) applyAct(c *schemas.Control, done *Done) error {
	changeValue(done, "paused", &c.Paused, a.Paused)
	changeValue(done, "draining", &c.Draining, a.Draining)
	changeValue(done, "eta", &c.Eta, a.Eta)
	if a.Eta != nil && a.Depth == nil {
		a.Depth = new(min(c.Depth, c.Eta)) // a depth beyond eta means nothing
	}
	if a.Depth != nil && *a.Depth > c.Eta {
		return fmt.Errorf("depth: %d: must not exceed eta, which is %d", *a.Depth, c.Eta)
	}
	changeValue(done, "depth", &c.Depth, a.Depth)
	if a.Limits != nil {
		a.Limits.applyLimits(c, done)
	}
	return nil
}

func changeValue[T comparable](done *Done, name string, at, to *T) {
	if to == nil || *at == *to {
		return
	}
	done.Changes = append(done.Changes, fmt.Sprintf("%s: %v, before %v", name, *to, *at))
	*at = *to
}
