package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/scale"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// standing is the state of a run, by its streams.
type standing struct {
	Run string `json:"run"`
	// State and Detail are the fields of a runfolder.Status.
	State  runfolder.State `json:"state"`
	Detail string          `json:"detail"`
	// Up reports whether a broker serves the streams.
	Up bool `json:"up"`
	// Trainer is the status by the trainer's own events, whether or not the run is up.
	Trainer        string     `json:"trainer"`
	TrainerHeardAt *time.Time `json:"trainer_heard_at,omitempty"`
	PolicyVersion  int64      `json:"policy_version"`
	// PublishedVersion is nil when no weights are published.
	PublishedVersion *int64     `json:"published_version,omitempty"`
	PublishedAt      *time.Time `json:"published_at,omitempty"`
	Eta              int        `json:"eta"`
	Depth            int        `json:"depth"`
	// Limits are the limits of episodes that operators have set, in words.
	Limits       []string `json:"limits"`
	Tickets      int      `json:"tickets"`
	Trajectories int      `json:"trajectories"`
	// Refused counts the messages in REJECTED.
	Refused int `json:"refused"`
	// RefusedByProducer counts the newest of them by the producer under whose name they came.
	RefusedByProducer []runfolder.ProducerRefusals `json:"refused_by_producer"`
	// Failures are the tasks whose episodes fail, do not end, or are ended by a limit, and those whose agents ask on after the end of their
	// episodes.
	Failures []report.Failure `json:"failures"`
	// LastStep and LastScore are nil before the first.
	LastStep  *eventAnswer `json:"last_step,omitempty"`
	LastScore *eventAnswer `json:"last_score,omitempty"`
	// Archive is nil where the trainer keeps the stream's messages itself, or does not keep them.
	Archive *archiveStanding `json:"archive,omitempty"`
	// Shadows are the shadows in the run's folder on this machine.
	Shadows []runfolder.ShadowNow `json:"shadows,omitempty"`
	// Scale is how many tickets and trajectories wait.
	Scale scale.Signal `json:"scale"`
	begun bool         // a trainer has told the staleness bound
}

// readStatus reads how a run stands.
func readStatus(ctx context.Context, s *assembly.Run, run *streams.Run, up bool) (*standing, error) {
	now := time.Now()
	read, err := runfolder.ReadStanding(ctx, run, up, now)
	if err != nil {
		return nil, err
	}
	out := newStanding(run.Name(), up, read)
	if !up {
		out.Detail += "; not up: the streams in " + s.Config.Broker.StoreDir
	}
	if out.Shadows, err = runfolder.Shadows(s.Config.Folder()); err != nil {
		return nil, err
	}
	if out.Archive, err = readArchive(ctx, run); err != nil {
		return nil, err
	}
	if out.Scale, err = readSignal(ctx, run, read.History.LastStep); err != nil {
		return nil, err
	}
	return out, nil
}

func newStanding(run string, up bool, read *runfolder.Standing) *standing {
	out := &standing{
		Run: run, State: read.State, Detail: read.Detail, Up: up, Trainer: read.Trainer.String(), Limits: []string{},
		Tickets: read.Counts.Tickets, Trajectories: read.Counts.Trajectories, Refused: read.Counts.Rejected, RefusedByProducer: read.Refused,
		Failures: read.History.Failures(),
	}
	if heard := read.History.LastHeard; !heard.IsZero() {
		out.TrainerHeardAt = &heard
	}
	if c := read.Control; c != nil {
		out.begun, out.PolicyVersion, out.Eta, out.Depth, out.Limits = true, c.PolicyVersion, c.Eta, c.Depth, limitTexts(c.Limits)
	}
	if m := read.Manifest; m != nil {
		out.PublishedVersion, out.PublishedAt = &m.Version, &m.PublishedAt
	}
	if e := read.History.LastStep; e != nil {
		out.LastStep = newEventAnswer(e)
	}
	if e := read.History.LastScore; e != nil {
		out.LastScore = newEventAnswer(e)
	}
	return out
}

// printStanding writes the run's state for a terminal that is width columns wide; 0 where w is no terminal.
func (o *standing) printStanding(w io.Writer, width int) {
	state := string(o.State)
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
	foldColumn(t, width, 2, len("staleness bound, depth")+7)
	t.AppendRows([]table.Row{{"run", o.Run}, {"state", report.Plain(state)}})
	if !o.Up {
		t.AppendRow(table.Row{"trainer", report.Plain(o.Trainer)})
	}
	for _, f := range o.Failures {
		t.AppendRow(table.Row{headFailure(f), f.String()})
	}
	t.AppendRow(table.Row{"policy version", o.PolicyVersion})
	if o.LastStep != nil {
		t.AppendRow(table.Row{"last step", report.Plain(o.LastStep.eventText())})
		if biased := metrics.Bias(o.LastStep.Metrics); biased != "" {
			t.AppendRow(table.Row{"biased", biased + ". " + metrics.BiasRemedy})
		}
	}
	if o.LastScore != nil {
		t.AppendRow(table.Row{"last score", report.Plain(o.LastScore.eventText())})
	}
	t.AppendRows([]table.Row{
		{"published", published},
		{"staleness bound, depth", bound},
		{"limits set", report.Plain(cmp.Or(strings.Join(o.Limits, ", "), "none"))},
		{"outstanding tickets", o.describeTickets()},
		{"trajectories waiting", o.Trajectories},
		{"refused, in REJECTED", o.Refused},
	})
	if len(o.RefusedByProducer) > 0 {
		t.AppendRow(table.Row{fmt.Sprintf("of the newest %d", runfolder.MostRefusals), report.Plain(o.refusedTexts())})
	}
	if o.Archive != nil {
		t.AppendRow(table.Row{"archive", report.Plain(o.Archive.String())})
	}
	for i := range o.Shadows {
		t.AppendRow(table.Row{"shadow " + report.Plain(o.Shadows[i].Name), describeShadow(&o.Shadows[i])})
	}
	t.Render()
}

// headFailure is the heading of a row about a task's failures.
func headFailure(f report.Failure) string {
	switch f.Kind() {
	case schemas.FailingLate:
		return "requests after the end"
	case schemas.FailingOverdue:
		return "episodes do not end"
	case schemas.FailingLimited:
		return "a limit ends episodes"
	}
	return "episodes fail"
}

// refusedTexts names the producers of refused messages, the producer with the most first.
func (o *standing) refusedTexts() string {
	const most = 4
	var texts []string
	for _, p := range o.RefusedByProducer[:min(most, len(o.RefusedByProducer))] {
		texts = append(texts, p.String())
	}
	if more := len(o.RefusedByProducer) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more producers", more))
	}
	return strings.Join(texts, "; ")
}

// describeTickets says where the outstanding tickets are.
func (o *standing) describeTickets() string {
	text := strconv.Itoa(o.Tickets)
	if o.Tickets > 0 {
		text += fmt.Sprintf(": %d wait for a producer, %d are leased, the oldest for %.0f s",
			o.Scale.TicketsWaiting, o.Scale.TicketsLeased, o.Scale.OldestTicketSeconds)
	}
	return text
}

// foldColumn breaks a column's long texts where a terminal is too narrow for them beside the columns of the rest, borders counted. A stream
// that is no terminal, width 0, gets a line for each row.
func foldColumn(t table.Writer, width, column, rest int) {
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

func (e *eventAnswer) eventText() string { return report.EventText(e.event) }
