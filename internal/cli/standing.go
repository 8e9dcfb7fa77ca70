package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/scale"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// The states of a run.
const (
	stateNone     = "no trainer has begun"
	stateStarting = "starting"
	stateRunning  = "running"
	stateWaiting  = "waiting"
	stateLeft     = "no trainer"
	stateFinished = "finished"
	stateDraining = "draining"
	statePaused   = "paused"
	stateNotUp    = "not up"
)

// standing is how a run stands, by what its streams hold.
type standing struct {
	Run   string `json:"run"`
	State string `json:"state"`
	// Detail says more of the state.
	Detail string `json:"detail"`
	// Trainer is what the trainer's own events tell, whether or not the run is up.
	Trainer        string     `json:"trainer"`
	TrainerHeardAt *time.Time `json:"trainer_heard_at,omitempty"`
	PolicyVersion  int64      `json:"policy_version"`
	// PublishedVersion is nil when no weights are published.
	PublishedVersion *int64     `json:"published_version,omitempty"`
	PublishedAt      *time.Time `json:"published_at,omitempty"`
	Eta              int        `json:"eta"`
	Depth            int        `json:"depth"`
	// Limits are what operators have set of the limits of episodes, in words.
	Limits       []string `json:"limits"`
	Tickets      int      `json:"tickets"`
	Trajectories int      `json:"trajectories"`
	// Refused counts the messages in REJECTED.
	Refused int `json:"refused"`
	// LastStep and LastScore are nil before the first.
	LastStep  *eventAnswer `json:"last_step,omitempty"`
	LastScore *eventAnswer `json:"last_score,omitempty"`
	// Scale is what waits for whom.
	Scale scale.Signal `json:"scale"`
	begun bool         // a trainer has told the staleness bound
}

// mostEvents bounds the events that are read to know how a run stands.
const mostEvents = 20_000

func (s *session) readStatus(ctx context.Context, run *streams.Run, up bool) (*standing, error) {
	control, err := run.Control(ctx)
	if err != nil && !errors.Is(err, streams.ErrNoControl) {
		return nil, err
	}
	begun := control != nil
	if !begun {
		control = &schemas.Control{}
	}
	out := &standing{begun: begun, Run: run.Name(), PolicyVersion: control.PolicyVersion, Eta: control.Eta, Depth: control.Depth, Limits: limitTexts(control.Limits)}
	if m, err := run.LatestManifest(ctx); err == nil {
		out.PublishedVersion, out.PublishedAt = &m.Version, &m.PublishedAt
	} else if !errors.Is(err, streams.ErrNoWeights) {
		return nil, err
	}
	counts, err := run.Counts(ctx)
	if err != nil {
		return nil, err
	}
	out.Tickets, out.Trajectories, out.Refused = counts.Tickets, counts.Trajectories, counts.Rejected
	var told story
	if err := run.PastEvents(ctx, mostEvents, told.add); err != nil {
		return nil, err
	}
	out.tell(&told, time.Now())
	if out.Scale, err = readSignal(ctx, run, told.lastStep); err != nil {
		return nil, err
	}
	switch {
	case !up:
		out.State, out.Detail = stateNotUp, "the streams in "+s.cfg.Broker.StoreDir
	case control.Draining:
		out.State, out.Detail = stateDraining, ""
	case control.Paused:
		out.State, out.Detail = statePaused, ""
	}
	return out, nil
}

// story is what the trainer's events tell, in their order.
type story struct {
	state       string
	heard, step time.Time
	lastStep    *schemas.Event
	lastScore   *schemas.Event
	cold        *schemas.Event
	trouble     string // why no step can be done, as the trainer told since the last
}

func (t *story) add(e *schemas.Event) {
	if e.Role != "trainer" {
		return
	}
	if e.Type == schemas.EventWorkerHere {
		if t.state == "" { // what it did before is no longer among the events that are read
			t.state, t.heard = stateStarting, e.At
		}
		return
	}
	t.heard = e.At
	switch e.Type {
	case schemas.EventWorkerJoined:
		t.state, t.cold = stateStarting, nil
	case schemas.EventColdStart:
		t.state, t.cold = stateStarting, e
	case schemas.EventVersionPublished:
		t.state, t.step = stateRunning, e.At
	case schemas.EventStepDone:
		t.state, t.step, t.lastStep, t.trouble = stateRunning, e.At, e, ""
	case schemas.EventDropped:
		t.trouble = e.Message
	case schemas.EventEvaluated:
		t.lastScore = e
	case schemas.EventRunDone:
		t.state = stateFinished
	case schemas.EventWorkerLeft:
		if t.state != stateFinished {
			t.state = stateLeft
		}
	}
}

// How long nothing is heard before a run that takes steps is said to wait: several times what its last step took, and at
// least so long.
const (
	quietSteps = 3
	quietLeast = 30 * time.Second
)

// tell fills in what a story says at an instant.
func (o *standing) tell(t *story, now time.Time) {
	o.State, o.Trainer = t.state, t.state
	if t.state == "" {
		o.State, o.Trainer = stateNone, stateNone
		return
	}
	ago := func(at time.Time) string { return max(0, now.Sub(at)).Round(time.Second).String() + " ago" }
	o.TrainerHeardAt = &t.heard
	if t.lastStep != nil {
		o.LastStep = newEventAnswer(t.lastStep)
	}
	if t.lastScore != nil {
		o.LastScore = newEventAnswer(t.lastScore)
	}
	switch t.state {
	case stateStarting:
		o.Detail = "last heard of " + ago(t.heard)
		if t.cold != nil {
			o.Detail = "cold start, " + eventText(t.cold) + ", " + ago(t.heard)
		}
	case stateRunning:
		quiet := quietLeast
		if t.lastStep != nil {
			quiet = max(quiet, time.Duration(quietSteps*t.lastStep.Metrics[metrics.TimeStep.Name]*float64(time.Second)))
		}
		o.Detail = "last heard of " + ago(t.step)
		if now.Sub(t.step) > quiet {
			o.State, o.Detail = stateWaiting, "no step since "+ago(t.step)+": the trainer waits for trajectories, or was killed"
			if t.trouble != "" {
				o.Detail = "no step since " + ago(t.step) + ": " + t.trouble
			}
		}
	case stateLeft:
		o.Detail = "it left " + ago(t.heard)
	case stateFinished:
		o.Detail = ago(t.heard)
	}
	o.Trainer += ", " + o.Detail
}

// print writes the run's state for a terminal that is width columns wide; 0 where w is no terminal.
func (o *standing) print(w io.Writer, width int) {
	state := o.State
	if o.Detail != "" {
		state += ": " + o.Detail
	}
	published := "none"
	if o.PublishedVersion != nil {
		published = fmt.Sprintf("%d, %s ago", *o.PublishedVersion, time.Since(*o.PublishedAt).Round(time.Second))
	}
	bound := fmt.Sprintf("%d, %d", o.Eta, o.Depth)
	if !o.begun {
		bound = "not told yet"
	}
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	fold(t, width, 2, len("staleness bound, depth")+7)
	t.AppendRows([]table.Row{{"run", o.Run}, {"state", report.Plain(state)}})
	if o.State == stateNotUp {
		t.AppendRow(table.Row{"trainer", report.Plain(o.Trainer)})
	}
	t.AppendRow(table.Row{"policy version", o.PolicyVersion})
	if o.LastStep != nil {
		t.AppendRow(table.Row{"last step", report.Plain(o.LastStep.text())})
	}
	if o.LastScore != nil {
		t.AppendRow(table.Row{"last score", report.Plain(o.LastScore.text())})
	}
	t.AppendRows([]table.Row{
		{"published", published},
		{"staleness bound, depth", bound},
		{"limits set", report.Plain(cmp.Or(strings.Join(o.Limits, ", "), "none"))},
		{"outstanding tickets", o.tickets()},
		{"trajectories waiting", o.Trajectories},
		{"refused, in REJECTED", o.Refused},
	})
	t.Render()
}

// tickets says where the outstanding tickets are.
func (o *standing) tickets() string {
	text := strconv.Itoa(o.Tickets)
	if o.Tickets > 0 {
		text += fmt.Sprintf(": %d wait for a producer, %d are leased, the oldest for %.0f s", o.Scale.TicketsWaiting, o.Scale.TicketsLeased, o.Scale.OldestTicketSeconds)
	}
	return text
}

// fold breaks a column's long texts where a terminal is too narrow for them beside the columns of the rest, borders
// counted. What is not a terminal, width 0, gets a line for each row.
func fold(t table.Writer, width, column, rest int) {
	const least = 16
	if width > 0 {
		t.SetColumnConfigs([]table.ColumnConfig{{Number: column, WidthMax: max(width-rest, least), WidthMaxEnforcer: text.WrapSoft}})
	}
}

// eventAnswer is an event as JSON.
type eventAnswer struct {
	At            time.Time          `json:"at"`
	Type          schemas.EventType  `json:"type"`
	Role          string             `json:"role"`
	Worker        string             `json:"worker,omitempty"`
	Step          int64              `json:"step"`
	PolicyVersion int64              `json:"policy_version"`
	Metrics       map[string]float64 `json:"metrics,omitempty"`
	Message       string             `json:"message,omitempty"`
	event         *schemas.Event
}

func newEventAnswer(e *schemas.Event) *eventAnswer {
	// JSON has no number for these.
	metrics := map[string]float64{}
	for name, x := range e.Metrics {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			metrics[name] = x
		}
	}
	return &eventAnswer{e.At.UTC(), e.Type, e.Role, e.Worker, e.Step, e.PolicyVersion, metrics, e.Message, e}
}

func (e *eventAnswer) text() string { return eventText(e.event) }

// eventLine is an event as a line of status --follow.
func eventLine(e *schemas.Event) string {
	return report.Plain(fmt.Sprintf("%s %-18s %-10s %s", e.At.Local().Format(time.TimeOnly), e.Type, e.Role, eventText(e)))
}

// eventText says with its numbers what happened.
func eventText(e *schemas.Event) string {
	m := e.Metrics
	switch e.Type {
	case schemas.EventStepDone:
		dropped, refused := report.Untrained(m)
		return fmt.Sprintf("step %d: reward %.3f, staleness %.2f mean, %.0f max, %.0f trajectories, dropped %.0f, refused %.0f, idle %.2f",
			e.Step, m[metrics.RewardMean.Name], m[metrics.StalenessMean.Name], m[metrics.StalenessMax.Name], m[metrics.BatchTrajectories.Name], dropped, refused, m[metrics.TimeIdleRatio.Name])
	case schemas.EventEvaluated:
		return fmt.Sprintf("version %d: exact match %.3f over %.0f held-out questions", e.PolicyVersion, m[metrics.EvalExactMatch.Name], m[metrics.EvalQuestions.Name])
	case schemas.EventColdStart:
		return fmt.Sprintf("step %.0f of %.0f, loss %.3f", m[metrics.ColdStartStep.Name], m[metrics.ColdStartSteps.Name], m[metrics.ColdStartLoss.Name])
	case schemas.EventVersionApplied:
		return fmt.Sprintf("version %d by %s, %.0f ms after it was published", e.PolicyVersion, e.Worker, 1000*m["weights_lag_seconds"])
	case schemas.EventVersionPublished:
		return fmt.Sprintf("version %d", e.PolicyVersion)
	case schemas.EventRunDone:
		return fmt.Sprintf("step %d: %s", e.Step, e.Message)
	case schemas.EventWorkerJoined, schemas.EventWorkerLeft:
		return e.Worker
	}
	return fmt.Sprintf("version %d %s", e.PolicyVersion, e.Message)
}
