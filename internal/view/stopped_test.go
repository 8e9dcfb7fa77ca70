package view

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// heard is an event of a worker, so long before the instant of the test.
type heard struct {
	ago          time.Duration
	role, worker string
	kind         schemas.EventType
	silentBuild  bool // it promises nothing: a build of before
}

// A worker that stopped without a goodbye alarms, and so does a role of which none is left; who said goodbye, was replaced, or
// promised nothing does not.
func TestARoleThatStoppedAlarms(t *testing.T) {
	t.Parallel()
	const joined, here, left = schemas.EventWorkerJoined, schemas.EventWorkerHere, schemas.EventWorkerLeft
	hour, now := time.Hour, time.Duration(0)
	come := func(role, worker string) heard { return heard{hour, role, worker, joined, false} }
	is := func(role, worker string) heard { return heard{now, role, worker, here, false} }
	sound := []heard{come("trainer", "t"), is("trainer", "t"), come("inference", "i"), is("inference", "i"), come("producer", "p"), is("producer", "p")}
	without := func(worker string, more ...heard) []heard {
		var out []heard
		for _, h := range sound {
			if h.worker != worker || h.kind == joined {
				out = append(out, h)
			}
		}
		return append(out, more...)
	}
	for _, c := range []struct {
		name  string
		heard []heard
		state runfolder.State
		// want are the level, the title and parts of what and of what to do; nil is no alarm.
		want []string
	}{
		{"nobody", nil, runfolder.StateRunning, nil},
		{"all are there", sound, runfolder.StateRunning, nil},
		{"the last producer was killed", without("p"), runfolder.StateRunning, []string{"alarm", "no producer is there", "p stopped without a goodbye, last heard of 1h0m ago: no ticket is worked on: 5 wait, and 7 that were leased", "weir producer"}},
		{"the last engine was killed", without("i"), runfolder.StateRunning, []string{"alarm", "no inference consumer is there", "i stopped without a goodbye", "no token is sampled", "weir inference"}},
		{"the trainer was killed", without("t"), runfolder.StateRunning, []string{"alarm", "no trainer is there", "no step is done", "weir trainer"}},
		{"a paused run's producer was killed", without("p"), runfolder.StatePaused, []string{"alarm", "no producer is there"}},
		{
			"the last tool worker was killed",
			without("", come("tools", "w")), runfolder.StateRunning,
			[]string{"alarm", "no tool worker is there", "calls of the tools", "weir tools"},
		},
		{"one of two", without("", come("producer", "q")), runfolder.StateRunning, []string{"warn", "a producer stopped", "q stopped without a goodbye", "1 of this role are there", "leases lapse", "SIGTERM"}},
		{
			"four of five", without("", come("producer", "a"), come("producer", "b"), come("producer", "c"), heard{hour / 2, "producer", "d", joined, false}), runfolder.StateRunning,
			[]string{"warn", "a producer stopped", "d, c, b and 1 more stopped without a goodbye, last heard of 30m0s ago"},
		},
		{"one of two, days ago", without("", heard{50 * hour, "producer", "q", joined, false}), runfolder.StateRunning, nil},
		{"one of two said goodbye", without("", come("producer", "q"), heard{hour / 2, "producer", "q", left, false}), runfolder.StateRunning, nil},
		{"one of two was replaced", without("", come("producer", "q"), heard{hour / 2, "producer", "r", joined, false}, is("producer", "r")), runfolder.StateRunning, nil},
		{
			"two were lost and one came", without("", come("producer", "q"), heard{hour, "producer", "s", joined, false}, heard{hour / 2, "producer", "r", joined, false}, is("producer", "r")),
			runfolder.StateRunning,
			[]string{"warn", "a producer stopped", "2 of this role are there"},
		},
		{"it was started again under its name", without("p", heard{time.Second, "producer", "p", joined, false}), runfolder.StateRunning, nil},
		{"silent for two promises", without("p", heard{2 * time.Minute, "producer", "p", here, false}), runfolder.StateRunning, nil},
		{"of a build that promises nothing", without("", heard{hour, "producer", "q", joined, true}), runfolder.StateRunning, nil},
		{"the last producer said goodbye", without("p", heard{hour / 2, "producer", "p", left, false}), runfolder.StateRunning, []string{"alarm", "no producer is there", "the last one, p, left 30m0s ago", "paused or drained"}},
		{"just now", without("p", heard{10 * time.Second, "producer", "p", left, false}), runfolder.StateRunning, nil},
		{"of a paused run", without("p", heard{hour / 2, "producer", "p", left, false}), runfolder.StatePaused, nil},
		{"the trainer said goodbye", without("t", heard{hour / 2, "trainer", "t", left, false}), runfolder.StateRunning, []string{"alarm", "no trainer is there", "the run is not at its end"}},
		{
			"the run's process was killed and started again",
			append([]heard{come("trainer", "old-t"), come("inference", "old-i"), come("producer", "old-p")}, []heard{
				{hour / 2, "trainer", "t", joined, false}, is("trainer", "t"), {hour / 2, "inference", "i", joined, false}, is("inference", "i"), {hour / 2, "producer", "p", joined, false}, is("producer", "p"),
			}...), runfolder.StateRunning, nil,
		},
		{"the run drains", without("p"), runfolder.StateDraining, nil},
		{"the run is over", without("p"), runfolder.StateFinished, nil},
		{"the trainer said that the run is over", without("p", heard{now, "trainer", "", schemas.EventRunDone, false}), runfolder.StateRunning, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
			events := runfolder.NewEvents(clock)
			for _, h := range c.heard {
				e := &schemas.Event{Type: h.kind, Role: h.role, Worker: h.worker, Metrics: map[string]float64{schemas.MetricAgain: 60}}
				if h.silentBuild {
					e.Metrics = nil
				}
				events.Add(e, clock.Add(-h.ago))
			}
			s := events.Streams(clock)
			s.Tickets = &runfolder.TicketsNow{Waiting: 5, Leased: 7}
			got := findStoppedRoles(s, c.state)
			if c.want == nil {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1, "%+v", got)
			text := got[0].Level + " " + got[0].Title + " " + got[0].What + " " + got[0].Do
			for _, part := range c.want {
				require.Contains(t, text, part)
			}
		})
	}
}

// The overview of a run whose broker is up has the alarm, by the broker's own clock, and the page's list of workers the state.
func TestALiveRunAlarmsOfAWorkerThatWasKilled(t *testing.T) {
	t.Parallel()
	run, err := streamtest.Conn(t).Open(t.Context(), "demo", streams.DefaultTopology())
	require.NoError(t, err)
	wrong := time.Now().Add(-24 * time.Hour) // the workers' clock
	emit := func(role, worker string, again float64) {
		require.NoError(t, run.Emit(t.Context(), &schemas.Event{
			Run: "demo", Type: schemas.EventWorkerJoined, At: wrong, Role: role, Worker: worker, Metrics: map[string]float64{schemas.MetricAgain: again},
		}))
	}
	emit("trainer", "t-1", 3600)
	emit("producer", "p-1", 1e-9)
	emit("inference", "i-1", 3600)
	s := start(t, Run{Run: runfolder.Run{Name: "demo", Connect: func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }}})
	status, out := ask(t, s, "GET", "/api/runs/demo/overview", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, out["alarms"], 1)
	require.Equal(t, "no producer is there", out["alarms"].([]any)[0].(map[string]any)["title"])
	status, out = ask(t, s, "GET", "/api/runs/demo/streams", "", "")
	require.Equal(t, http.StatusOK, status)
	states := map[string]any{}
	for _, w := range out["workers"].([]any) {
		states[w.(map[string]any)["name"].(string)] = w.(map[string]any)["state"]
	}
	require.Equal(t, map[string]any{"t-1": "here", "i-1": "here", "p-1": "silent"}, states)

	emit("producer", "p-2", 3600) // in its place
	_, out = ask(t, s, "GET", "/api/runs/demo/overview", "", "")
	require.Equal(t, []any{}, out["alarms"], "the page goes through it")
}

// A folder whose note of the broker was not taken back, and where no broker answers, is that of a run that was killed.
func TestAKilledRunsFolderAlarms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s     Summary
		noted string
		want  bool
	}{
		"killed":              {Summary{State: runfolder.StateStopped}, "nats://127.0.0.1:4222", true},
		"before a step":       {Summary{State: runfolder.StateEmpty}, "nats://127.0.0.1:4222", true},
		"ended in order":      {Summary{State: runfolder.StateStopped}, "", false},
		"finished":            {Summary{State: runfolder.StateFinished}, "nats://127.0.0.1:4222", false},
		"up, and not started": {Summary{State: runfolder.StateEmpty, Up: true}, "nats://127.0.0.1:4222", false},
	} {
		a, is := findKilled(&c.s, c.noted)
		require.Equal(t, c.want, is, name)
		if is {
			require.Contains(t, a.What, c.noted)
			require.Contains(t, a.Do, "the same command")
		}
	}
}
