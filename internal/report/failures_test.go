package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// failingEvent is a producer's report.
func failingEvent(worker string, f schemas.Failing) *schemas.Event {
	return f.Event("r", worker, time.Unix(int64(f.Failed), 0))
}

// N1: the failures of a task are those of all producers, until they succeed again or leave.
func TestFailuresAreThoseOfAllProducers(t *testing.T) {
	var f Failures
	require.Empty(t, f.List())
	agent := schemas.Failing{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 20}, Last: "agent mine: answered 503: no \x1b[31mtemplate"}
	require.True(t, f.AddEvent(failingEvent("p1", agent)))
	require.Equal(t, "task crates: no episode succeeds: 20 of 20 failed; the last: agent mine: answered 503: no \\x1b[31mtemplate", f.List()[0].String())
	require.True(t, f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Failed: 5, Succeeded: 3, ByCause: map[string]int{"tool": 5}, Last: "tool look: away"})))
	require.Len(t, f.List(), 1)
	require.Equal(t, "task crates: 25 of 28 failed (agent 20, tool 5); the last: agent mine: answered 503: no \\x1b[31mtemplate", f.List()[0].String())
	kept := f.Clone()
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerHere, Role: "producer", Worker: "p1"}))
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerLeft, Role: "trainer", Worker: "p1"}))
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerLeft, Role: "producer", Worker: "p1"}))
	require.Equal(t, 25, f.List()[0].Failed, "they say why the run stopped")
	require.True(t, f.AddEvent(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: time.Unix(21, 0)}))
	require.Equal(t, 5, f.List()[0].Failed)
	require.True(t, f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Over: true})))
	require.Empty(t, f.List())
	require.Equal(t, 25, kept.List()[0].Failed)

	// A producer that was killed is gone once a step is done without it; a new trainer begins anew.
	f.AddEvent(failingEvent("p3", agent))
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: time.Unix(100, 0)}))
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerHere, Role: "producer", Worker: "p3", At: time.Unix(130, 0)}))
	require.False(t, f.AddEvent(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: time.Unix(200, 0)}))
	require.True(t, f.AddEvent(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: time.Unix(300, 0)}))
	require.Empty(t, f.List())
	f.AddEvent(failingEvent("p4", agent))
	require.True(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerJoined, Role: "trainer", Worker: "t"}))
	require.Empty(t, f.List())
}

// Row 1: requests after the end of episodes are a row of their own beside a task's failures, over all producers.
func TestRequestsAfterTheEndAreARowOfTheirOwn(t *testing.T) {
	var f Failures
	f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 20}, Last: "away"}))
	require.True(t, f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Late: 3, Last: "POST /v1/messages"})))
	require.True(t, f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Late: 4, Last: "POST /v1/messages"})))
	require.Len(t, f.List(), 2)
	require.Equal(t, "task crates: the agent goes on asking after its episode ended: 7 requests; the last: POST /v1/messages",
		f.List()[1].String())
	f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Late: 3, Over: true}))
	f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Late: 4, Over: true}))
	require.Len(t, f.List(), 1)
	require.Equal(t, 20, f.List()[0].Failed)
}

// A producer that reports ever new tasks, producers and causes would fill the trainer's memory, and write what it likes on its terminal.
func TestTheFailuresOfAStrangerAreBounded(t *testing.T) {
	var f Failures
	f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Failed: 5, ByCause: map[string]int{"agent": 5}}))
	causes := map[string]int{}
	for i := range 2 * mostCauses {
		causes[fmt.Sprintf("%d \x1b[31m%s", i, strings.Repeat("c", 2*mostName))] = 1
	}
	for i := range 2 * mostSpells {
		f.AddEvent(failingEvent(fmt.Sprintf("p%d", i), schemas.Failing{Task: "crates", Failed: 5, ByCause: causes}))
		f.AddEvent(failingEvent("p1", schemas.Failing{Task: fmt.Sprintf("\x1b[31m%d%s", i, strings.Repeat("t", 2*mostName)), Failed: 5, ByCause: causes}))
		f.AddEvent(failingEvent(fmt.Sprintf("q%d", i), schemas.Failing{Task: "crates", Over: true}))
	}
	require.LessOrEqual(t, len(f.by), mostSpells)
	require.LessOrEqual(t, len(f.heard), mostSpells)
	require.LessOrEqual(t, len(f.List()), mostTasks)
	for key, one := range f.by {
		require.LessOrEqual(t, len(key.task), mostName)
		require.LessOrEqual(t, len(one.ByCause), mostCauses)
		for cause := range one.ByCause {
			require.LessOrEqual(t, len(cause), mostName)
		}
	}
	require.Contains(t, f.List()[0].String(), "task crates: no episode succeeds", "the tasks that were known before stay")
	for _, one := range f.List() {
		require.NotContains(t, one.String(), "\x1b")
	}
	require.True(t, f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Over: true})))

	var again Failures
	for i := range 2 * mostSpells {
		for _, over := range []bool{false, true} {
			again.AddEvent(failingEvent(fmt.Sprintf("p%d", i), schemas.Failing{Task: "crates", Failed: 5, Over: over}))
		}
	}
	require.Empty(t, again.heard)
}

// N1: failures stand in the live view until they are over, and elsewhere as a line.
func TestProgressShowsFailures(t *testing.T) {
	failures := []Failure{{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 20}, Last: "agent mine: answered 503"}}
	want := "task crates: no episode succeeds: 20 of 20 failed; the last: agent mine: answered 503"
	var out bytes.Buffer
	p := NewProgress(&out, true, 10, 1, time.Now)
	p.Failing(failures)
	require.Contains(t, out.String(), want)
	out.Reset()
	p.Phase("training", "")
	require.Contains(t, out.String(), want, "it stays")
	out.Reset()
	p.Failing(nil)
	require.NotContains(t, out.String(), want)

	plain := NewProgress(&out, false, 10, 1, time.Now)
	out.Reset()
	plain.Failing(failures)
	require.Equal(t, "! "+want+"\n", out.String())
}

// Episodes that do not end are a row of their own, over all producers, until their producer leaves. A limit that ends a task's episodes takes
// the place of the line about all tasks.
func TestEpisodesThatDoNotEndAreARowOfTheirOwn(t *testing.T) {
	var f Failures
	require.True(t, f.AddEvent(failingEvent("p1", schemas.Failing{Task: "crates", Overdue: 1, Last: "e1 has run for 30 s"})))
	require.Equal(t, "task crates: an episode does not end: e1 has run for 30 s", f.List()[0].String())
	f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Overdue: 2, Last: "e1 has run for 30 s"}))
	require.Equal(t, "task crates: 3 episodes do not end; the oldest: e1 has run for 30 s", f.List()[0].String())
	require.False(t, NameLimit(f.List()))
	f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Limited: 60, Ended: 64, Last: "agent mine was stopped by turns"}))
	require.Equal(t, "task crates: a limit ends nearly every episode: 60 of the newest 64 trajectories: agent mine was stopped by turns", f.List()[0].String())
	require.True(t, NameLimit(f.List()))
	require.True(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerLeft, Role: "producer", Worker: "p1"}))
	require.True(t, f.AddEvent(&schemas.Event{Type: schemas.EventWorkerLeft, Role: "producer", Worker: "p2"}))
	require.Len(t, f.List(), 1)
	require.Equal(t, schemas.FailingLimited, f.List()[0].Kind())
	require.True(t, f.AddEvent(failingEvent("p2", schemas.Failing{Task: "crates", Limited: 60, Ended: 64, Over: true})))
	require.Empty(t, f.List())
	require.Empty(t, f.heard)
}
