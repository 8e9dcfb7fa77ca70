package schemas

import (
	"strings"
	"time"
)

// FailingKind is what a [Failing] counts.
type FailingKind string

// The kinds of a [Failing].
const (
	FailingEpisodes FailingKind = "failed"  // attempts that failed
	FailingLate     FailingKind = "late"    // requests of agents after the end of their episodes
	FailingOverdue  FailingKind = "overdue" // running episodes that do not end
	FailingLimited  FailingKind = "limited" // trajectories that a limit ended, where it ends nearly all
)

// Failing tells how the episodes of one task fail at one producer.
type Failing struct {
	Task string
	// Over reports that the episodes succeed again: the counts are of the spell that has ended.
	Over bool
	// Failed and Succeeded count the attempts of the spell; ByCause are the failed ones, by the labels of weir_producer_dropped_total.
	Failed, Succeeded int
	ByCause           map[string]int
	// Late are requests of agents after the end of their episodes. A report with Late counts nothing but these requests, and Last is the
	// newest of them.
	Late int
	// Overdue are running episodes whose agents neither end them nor ask for anything, or ask on and on; Last tells of the oldest. Limited are
	// trajectories that a limit ended, of the newest Ended. A report with one of them counts nothing else.
	Overdue, Limited, Ended int
	// Last are the newest failure's own words, with the part that failed.
	Last string
}

// Kind returns what f counts.
func (f *Failing) Kind() FailingKind {
	switch {
	case f.Late > 0:
		return FailingLate
	case f.Overdue > 0:
		return FailingOverdue
	case f.Limited > 0:
		return FailingLimited
	}
	return FailingEpisodes
}

// The keys of a [Failing] in the metrics of its event.
const (
	metricFailed    = "failed"
	metricSucceeded = "succeeded"
	metricOver      = "over"
	metricLate      = "late"
	metricOverdue   = "overdue"
	metricLimited   = "limited"
	metricEnded     = "ended"
	metricFailedBy  = "failed/"
	metricTask      = "task/"
)

// Event returns the event that tells of f.
func (f *Failing) Event(run, worker string, at time.Time) *Event {
	m := map[string]float64{metricFailed: float64(f.Failed), metricSucceeded: float64(f.Succeeded), metricTask + f.Task: 1}
	if f.Over {
		m[metricOver] = 1
	}
	for key, n := range map[string]int{metricLate: f.Late, metricOverdue: f.Overdue, metricLimited: f.Limited, metricEnded: f.Ended} {
		if n > 0 {
			m[key] = float64(n)
		}
	}
	for cause, n := range f.ByCause {
		m[metricFailedBy+cause] = float64(n)
	}
	return &Event{
		Run: run, Type: EventFailing, At: at.UTC(), Role: "producer", Worker: worker, Metrics: m, Message: strings.ToValidUTF8(f.Last, "\uFFFD"),
	}
}

// FailingOf returns the Failing that an event tells of; false where the event is of another type.
func FailingOf(e *Event) (Failing, bool) {
	if e.Type != EventFailing {
		return Failing{}, false
	}
	f := Failing{
		Failed: int(e.Metrics[metricFailed]), Succeeded: int(e.Metrics[metricSucceeded]), Over: e.Metrics[metricOver] > 0, Last: e.Message,
		Late:    int(e.Metrics[metricLate]),
		Overdue: int(e.Metrics[metricOverdue]), Limited: int(e.Metrics[metricLimited]), Ended: int(e.Metrics[metricEnded]),
		ByCause: map[string]int{},
	}
	for key, n := range e.Metrics {
		if cause, ok := strings.CutPrefix(key, metricFailedBy); ok {
			f.ByCause[cause] = int(n)
		}
		if task, ok := strings.CutPrefix(key, metricTask); ok {
			f.Task = task
		}
	}
	return f, true
}
