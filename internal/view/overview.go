package view

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Summary is a run in a line.
type Summary struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// State is running, waiting, finished, stopped, paused, draining or empty; Detail says since when or why.
	State  string `json:"state"`
	Detail string `json:"detail"`
	// Up says that the run's broker answers.
	Up bool `json:"up"`
	// Step counts the steps done, Steps those that the run is configured for, 0 where that is not known.
	Step   int64    `json:"step"`
	Steps  int64    `json:"steps"`
	Reward *float64 `json:"reward"`
	Score  *float64 `json:"score"`
	// Scored is the version that Score is of.
	Scored int64      `json:"scored"`
	At     *time.Time `json:"at"`
	Alarms int        `json:"alarms"`
}

// Overview is how a run goes.
type Overview struct {
	Summary Summary `json:"summary"`
	Alarms  []Alarm `json:"alarms"`
	// Last are all numbers of the newest step, Score those of the newest score.
	Last  map[string]float64 `json:"last"`
	Score map[string]float64 `json:"score"`
	// Limits says in words who waits for whom.
	Limits string `json:"limits"`
	// Changed are the settings that changed between steps.
	Changed []Change `json:"changed"`
	// Unread counts lines of the record of steps that are no record.
	Unread int `json:"unread"`
}

// Change is a setting that a step was trained with otherwise than the step before.
type Change struct {
	Step   int64  `json:"step"`
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// The states of a run.
const (
	stateEmpty    = "empty"
	stateRunning  = "running"
	stateFinished = "finished"
	stateStopped  = "stopped"
	statePaused   = "paused"
	stateDraining = "draining"
)

// overview is how the run goes.
func (f *folder) overview(ctx context.Context, now time.Time) *Overview {
	steps, scores := f.numbers.tail(schemas.EventStepDone, window), f.numbers.tail(schemas.EventEvaluated, window)
	o := &Overview{Alarms: alarms(steps, scores), Last: map[string]float64{}, Score: map[string]float64{}, Changed: f.index.changes()}
	s := &o.Summary
	s.Name, s.Folder, s.Steps, s.State = f.Name, f.Dir, int64(f.number(0, "trainer", "steps")), stateEmpty
	var last *report.Record
	if len(steps) > 0 {
		last = &steps[len(steps)-1]
		o.Last, s.At = last.Metrics, &last.At
		s.Step = last.Step
		reward := metrics.RewardMean.In(last.Metrics)
		s.Reward = &reward
		o.Limits = report.Limits(steps)
	}
	if len(scores) > 0 {
		newest := &scores[len(scores)-1]
		score := metrics.EvalExactMatch.In(newest.Metrics)
		s.Score, s.Scored, o.Score = &score, newest.PolicyVersion, newest.Metrics
	}
	before, of := f.facts.answers()
	if a, is := repeated(before, of, steps); is {
		o.Alarms = append(o.Alarms, a)
	}
	f.stand(ctx, s, last, now)
	if a, is := quiet(last, s.Step, s.Steps, now); is && s.State == stateRunning {
		o.Alarms = append([]Alarm{a}, o.Alarms...)
	}
	if s.Up {
		o.Alarms = slices.Insert(o.Alarms, 0, f.roles(ctx, s.State, now)...)
	}
	if a, is := killed(s, f.noted()); is {
		o.Alarms = append([]Alarm{a}, o.Alarms...)
	}
	f.index.mu.RLock()
	o.Unread = f.index.unread
	f.index.mu.RUnlock()
	if o.Unread > 0 {
		o.Alarms = append(o.Alarms, Alarm{levelAlarm, "the record was changed", "some lines of steps.jsonl are no record", "weir audit lists them.", ""})
	}
	s.Alarms = len(o.Alarms)
	return o
}

// stand says how the run stands.
func (f *folder) stand(ctx context.Context, s *Summary, last *report.Record, now time.Time) {
	run, err := f.live.get(ctx)
	s.Up = err == nil
	switch {
	case last == nil && !s.Up:
		s.Detail = "no step has been done"
	case s.Steps > 0 && s.Step >= s.Steps:
		s.State, s.Detail = stateFinished, since(last.At, now)
	case !s.Up:
		s.State, s.Detail = stateStopped, "the last step ended "+since(last.At, now)
	case last == nil:
		s.State, s.Detail = stateRunning, "no step has been done yet"
	default:
		s.State, s.Detail = stateRunning, "the last step ended "+since(last.At, now)
	}
	if !s.Up || s.State == stateFinished {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	control, err := run.Control(ctx)
	switch {
	case err != nil:
	case control.Draining:
		s.State = stateDraining
	case control.Paused:
		s.State, s.Detail = statePaused, "producers take no tickets; rollouts that run go on"
	}
}

// changes are the settings that changed between steps, the newest last.
func (x *index) changes() []Change {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := []Change{}
	for i := range x.steps {
		for _, c := range x.steps[i].changed {
			out = append(out, Change{x.steps[i].step, c.Key, c.Before, c.After})
		}
	}
	return out
}
