package runfolder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// State is how a run stands, in a word.
type State string

// The states of a run.
const (
	StateEmpty    State = "empty"    // no trainer has begun it
	StateStarting State = "starting" // a trainer is there, and no version is published yet
	StateRunning  State = "running"
	StateWaiting  State = "waiting"  // no step was done for several times as long as the last step took
	StateLeft     State = "left"     // its trainer left before the end
	StateFinished State = "finished" // all its steps are done
	StatePaused   State = "paused"
	StateDraining State = "draining"
	StateStopped  State = "stopped" // it is not at its end, and no broker answers
	StateBroken   State = "broken"  // its folder cannot be read
)

// Status is how a run stands.
type Status struct {
	State State
	// Detail is a sentence about the state: since when, or why. "" where the state is all.
	Detail string
}

// String returns the status in words.
func (s Status) String() string {
	if s.Detail == "" {
		return string(s.State)
	}
	return string(s.State) + ", " + s.Detail
}

// withControl returns the status of a run whose operators have set control. A run that is at its end stays so.
func (s Status) withControl(control *schemas.Control) Status {
	switch {
	case control == nil || s.State == StateFinished:
	case control.Draining:
		s.State = StateDraining
	case control.Paused:
		return Status{StatePaused, "producers take no tickets; rollouts that run go on"}
	}
	return s
}

// withoutBroker returns the status of a run whose broker does not answer.
func (s Status) withoutBroker() Status {
	if s.State != StateFinished && s.State != StateEmpty {
		s.State = StateStopped
	}
	return s
}

// A run that takes steps waits when none was done for quietSteps times as long as the last step took, and for quietLeast at least.
const (
	quietSteps = 3
	quietLeast = 30 * time.Second
)

// Patience returns how long after a step that took so many seconds the next is expected.
func Patience(stepSeconds float64) time.Duration {
	return max(quietLeast, time.Duration(quietSteps*stepSeconds*float64(time.Second)))
}

// Status returns how the run stands: by its trainer's events where a broker answers and shows them, else by its numbers. seen is nil where
// no events can be read.
func (f *Folder) Status(ctx context.Context, now time.Time) (status Status, seen *Streams, up bool) {
	status = f.numbersStatus(now)
	run, err := f.Broker(ctx)
	if err != nil {
		return status.withoutBroker(), nil, false
	}
	reading, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	all, history, err := f.crew.read(reading, run, now)
	if err == nil {
		seen = all
		if status.State != StateFinished && !history.LastHeard.IsZero() {
			status = history.Status(now)
		}
	}
	asking, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	control, silent := run.Control(asking)
	switch {
	case silent == nil:
		status = status.withControl(control)
	case err != nil && !errors.Is(silent, streams.ErrNoControl) && !errors.Is(silent, streams.ErrDenied):
		f.DropBroker(run, silent) // it answers neither question
		return status.withoutBroker(), nil, false
	}
	return status, seen, true
}

// numbersStatus returns how the run stands by the lines of its MetricsFile.
func (f *Folder) numbersStatus(now time.Time) Status {
	newest := f.Metrics.Newest(schemas.EventStepDone, 1)
	if len(newest) == 0 {
		return Status{StateEmpty, "no step has been done"}
	}
	last := newest[0]
	if steps := int64(f.Int(0, "trainer", "steps")); steps > 0 && last.Step >= steps {
		return Status{StateFinished, Ago(last.At, now)}
	}
	return Status{StateRunning, "the last step ended " + Ago(last.At, now)}
}

// brokerPatience bounds how long a broker is asked for a status.
const brokerPatience = 5 * time.Second

// History is the course of a run by its trainer's events, in their order. The zero value has no events.
type History struct {
	// LastHeard is the time of the newest event of a trainer; the zero time where there is none.
	LastHeard time.Time
	// LastStep and LastScore are nil before the first.
	LastStep, LastScore *schemas.Event

	standing
	trainers trainers
	stepped  time.Time // of the newest step, or publication
	trouble  string    // why no step can be done, since the last
	waits    string    // what the trainer waits for beside trajectories; "" is nothing
	failures report.Failures
	// told is the time of the newest event of any worker, and again the longest time within which a worker promised to tell again; 0 where
	// none did.
	told  time.Time
	again time.Duration
	crews crews
}

// failingTask returns the task with the most failures where none of its episodes has succeeded since the newest step.
func (h *History) failingTask() (report.Failure, bool) {
	failures := h.Failures()
	if len(failures) == 0 {
		return report.Failure{}, false
	}
	f := failures[0]
	return f, f.Kind() == schemas.FailingEpisodes && f.Succeeded == 0 && f.At.After(h.stepped)
}

// stuckEpisodes returns the first task whose episodes do not end.
func (h *History) stuckEpisodes() (report.Failure, bool) {
	for _, f := range h.Failures() {
		if f.Kind() == schemas.FailingOverdue {
			return f, true
		}
	}
	return report.Failure{}, false
}

// Add takes in the next event.
func (h *History) Add(e *schemas.Event) {
	h.failures.AddEvent(e)
	h.told = e.At
	h.again = max(h.again, promisedAgain(e))
	h.crews.noteHeard(e)
	if e.Role != RoleTrainer {
		return
	}
	if e.Type == schemas.EventWorkerHere {
		h.trainers.noteHeard(e, h.standing)
		if h.state == "" { // the events before it are too old to be read
			h.state, h.LastHeard = StateStarting, e.At
		}
		return
	}
	h.LastHeard = e.At
	switch e.Type {
	case schemas.EventWorkerJoined:
		h.trainers.noteHeard(e, h.standing)
		h.state, h.coldStart, h.waits = StateStarting, nil, ""
	case schemas.EventColdStart:
		h.state, h.coldStart = StateStarting, e
	case schemas.EventVersionPublished:
		h.state, h.stepped = StateRunning, e.At
		h.trainers.noteStep(e.Worker)
	case schemas.EventStepDone:
		h.state, h.stepped, h.LastStep, h.trouble, h.waits = StateRunning, e.At, e, "", ""
		h.trainers.noteStep(e.Worker)
	case schemas.EventDropped:
		h.trouble = e.Message
	case schemas.EventWaiting:
		h.waits = e.Message
	case schemas.EventEvaluated:
		h.LastScore = e
	case schemas.EventRunDone:
		h.state = StateFinished
	case schemas.EventWorkerLeft:
		h.standing = h.trainers.noteLeft(e, h.standing)
	}
}

// Failures returns the tasks whose episodes fail.
func (h *History) Failures() []report.Failure { return h.failures.List() }

// Status returns how the run stands at an instant by these events alone.
func (h *History) Status(now time.Time) Status {
	heard := Ago(h.LastHeard, now)
	switch h.state {
	case "":
		return Status{StateEmpty, "no trainer has begun"}
	case StateStarting:
		if h.coldStart != nil {
			return Status{StateStarting, "cold start, " + report.EventText(h.coldStart) + ", " + heard}
		}
		return Status{StateStarting, "last heard of " + heard}
	case StateRunning:
		return h.runningStatus(now)
	case StateLeft:
		return Status{StateLeft, "the trainer left " + heard}
	}
	return Status{h.state, heard}
}

// runningStatus is the status of a trainer that has begun: it steps, or it waits.
func (h *History) runningStatus(now time.Time) Status {
	if f, fails := h.failingTask(); fails {
		return Status{StateWaiting, fmt.Sprintf("no step since %s: %s", Ago(h.stepped, now), f)}
	}
	seconds := 0.0
	if h.LastStep != nil {
		seconds = h.LastStep.Metrics[metrics.TimeStep.Name]
	}
	stepped := Ago(h.stepped, now)
	switch {
	case h.waits != "":
		return Status{StateWaiting, fmt.Sprintf("no step since %s: %s", stepped, h.waits)}
	case now.Sub(h.stepped) <= Patience(seconds):
		return Status{StateRunning, "last heard of " + stepped}
	case h.again > 0 && now.Sub(h.told) > h.again+h.again/2:
		return Status{StateWaiting, fmt.Sprintf("no step since %s, and no word of any worker since %s: all were killed, or the broker does not "+
			"store what they send, as when its disk is full: its log and its /readyz say why", stepped, Ago(h.told, now))}
	case h.trouble != "":
		return Status{StateWaiting, fmt.Sprintf("no step since %s: %s", stepped, h.trouble)}
	case h.trainers.isSilent(now):
		return Status{StateWaiting, fmt.Sprintf("no step since %s: the trainer was killed, or has lost the broker", stepped)}
	}
	if f, stuck := h.stuckEpisodes(); stuck {
		return Status{StateWaiting, fmt.Sprintf("no step since %s: %s", stepped, f)}
	}
	detail := fmt.Sprintf("no step since %s: the trainer waits for trajectories", stepped)
	if !h.trainers.keepPromises() {
		return Status{StateWaiting, detail + ", or was killed"}
	}
	return Status{StateWaiting, detail + h.crews.describeSilent(now)}
}
