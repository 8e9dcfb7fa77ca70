package view

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Summary is a run in a line.
type Summary struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// State and Detail are a runfolder.Status.
	State  runfolder.State `json:"state"`
	Detail string          `json:"detail"`
	// Up says that the run's broker answers.
	Up bool `json:"up"`
	// Step counts the steps done, Steps is the configured number of steps, 0 where it is not known.
	Step   int64    `json:"step"`
	Steps  int64    `json:"steps"`
	Reward *float64 `json:"reward"`
	Score  *float64 `json:"score"`
	// Scored is the version that Score is of.
	Scored int64      `json:"scored"`
	At     *time.Time `json:"at"`
	Alarms int        `json:"alarms"`
	// Verdict is how the run goes, in one sentence.
	Verdict report.Verdict `json:"verdict"`
}

// Overview is how a run goes.
type Overview struct {
	Summary Summary `json:"summary"`
	Alarms  []Alarm `json:"alarms"`
	// Failures are the tasks whose episodes fail now.
	Failures []report.Failure `json:"failures"`
	// Last are all numbers of the newest step, Score all numbers of the newest score.
	Last  map[string]float64 `json:"last"`
	Score map[string]float64 `json:"score"`
	// Limits is a sentence about the role that the others wait for.
	Limits string `json:"limits"`
	// Changed are the settings that changed between steps.
	Changed []runfolder.Change `json:"changed"`
	// Unread counts lines of the record of steps that are no record.
	Unread int `json:"unread"`
}

// Configuration is what a run was started with.
type Configuration struct {
	Build    runfolder.Build     `json:"build"`
	Settings []runfolder.Setting `json:"settings"`
}

// Log is the end of a run's log.
type Log struct {
	Lines []runfolder.LogLine `json:"lines"`
}

// readOverview is how the run goes.
func (f *shownRun) readOverview(ctx context.Context, now time.Time) *Overview {
	steps, scores := f.folder.Metrics.Newest(schemas.EventStepDone, window), f.folder.Metrics.Newest(schemas.EventEvaluated, window)
	o := &Overview{
		Alarms: judgeSteps(steps, scores), Failures: []report.Failure{}, Last: map[string]float64{}, Score: map[string]float64{},
		Changed: f.folder.Steps.Changes(),
	}
	s := &o.Summary
	s.Name, s.Folder, s.Steps = f.Name, f.Dir, int64(f.folder.Int(0, "trainer", "steps"))
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
	before, of := f.folder.Archive.Answers()
	if a, is := findRepeatedAnswer(before, of, steps); is {
		o.Alarms = append(o.Alarms, a)
	}
	status, seen, up := f.folder.Status(ctx, now)
	s.State, s.Detail, s.Up = status.State, status.Detail, up
	if a, is := findQuietTrainer(last, s.Step, s.Steps, now); is && (s.State == runfolder.StateRunning || s.State == runfolder.StateWaiting) {
		o.Alarms = append([]Alarm{a}, o.Alarms...)
	}
	if seen != nil {
		o.Alarms = slices.Insert(o.Alarms, 0, f.roleAlarms(ctx, seen, s.State)...)
		if s.State != runfolder.StateFinished {
			o.Failures = seen.Failures
			if report.NameLimit(o.Failures) { // with the task's name
				o.Alarms = slices.DeleteFunc(o.Alarms, func(a Alarm) bool { return a.Title == report.LimitedTitle })
			}
		}
		o.Alarms = slices.Insert(o.Alarms, 0, failureAlarms(o.Failures)...)
	}
	if a, is := findKilled(s, f.notedBroker()); is {
		o.Alarms = append([]Alarm{a}, o.Alarms...)
	}
	if o.Unread = f.folder.Steps.Unread(); o.Unread > 0 {
		o.Alarms = append(o.Alarms, Alarm{levelAlarm, "the record was changed", "some lines of steps.jsonl are no record", "weir audit lists them.", ""})
	}
	s.Alarms = len(o.Alarms)
	s.Verdict = f.judgeRun(o)
	return o
}
