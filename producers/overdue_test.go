package producers

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// farTool is a tool at a worker that opens no session for long.
type farTool struct{ SessionTool }

func (farTool) Spec() ToolSpec { return ToolSpec{Name: "look"} }
func (farTool) Place() string  { return "at a worker" }
func (farTool) Open(context.Context, Session) error {
	pass(80 * time.Second)
	return ErrUnavailable
}

// watchedTask is a task whose episodes are watched by a worker, in a bubble of its own clock.
type watchedTask struct {
	t       *testing.T
	worker  *worker
	reports []schemas.Failing
}

// watchTask starts the watch of a task until the test's bubble ends.
func watchTask(t *testing.T) *watchedTask {
	t.Helper()
	w := &watchedTask{t: t}
	w.worker = newWorker(DefaultConfig(), Deps{
		Environments: map[string]Environment{"things": {AgentName: "mine"}}, Log: slog.New(slog.DiscardHandler),
		Failing: func(f schemas.Failing) { w.reports = append(w.reports, f) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.worker.watchEndings(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// pass lets time go by in the bubble.
func pass(by time.Duration) { <-time.After(by) }

// begin begins an episode.
func (w *watchedTask) begin(id string) *runningEpisode {
	return w.worker.running.addEpisode(&schemas.Ticket{ID: id, Task: "things"}, w.worker.envs["things"], nil)
}

// end ends an episode.
func (w *watchedTask) end(e *runningEpisode, stop schemas.StopReason) {
	w.worker.running.removeEpisode(e)
	w.worker.endings["things"].addEnded(e.episode, stop)
}

// play plays an episode that takes so long and asks so many times.
func (w *watchedTask) play(id string, took time.Duration, asks int) {
	e := w.begin(id)
	for range asks {
		answered := e.episode.activity.beginRequest()
		pass(took / time.Duration(2*asks))
		answered()
		pass(took / time.Duration(2*asks))
	}
	w.end(e, schemas.StopAnswer)
}

// An agent that begins to loop in the middle of a run is named within a minute, whether it asks for nothing or asks on and on, and a tool or
// a reward that hangs is named in its place. The spell is over a minute after the newest such episode.
func TestAnEpisodeThatDoesNotEndIsReported(t *testing.T) {
	for _, c := range []struct {
		name string
		loop func(e *Episode)
		want string
	}{
		{"asks for nothing", func(*Episode) {}, "has asked for nothing; "},
		{"asks once", func(e *Episode) { e.activity.beginRequest()() }, "has asked for nothing for 30 s, after 1 request; "},
		{"asks on and on", func(e *Episode) {
			for range 600 {
				answered := e.activity.beginRequest()
				pass(100 * time.Millisecond)
				answered()
			}
		}, "has asked the policy 301 times; "},
		{"a tool hangs", func(e *Episode) { e.activity.beginCall(PartTool, "look") }, "has waited for tool look for 30 s; "},
		{"a tool hangs beside another", func(e *Episode) {
			returned := e.activity.beginCall(PartTool, "quick")
			e.activity.beginCall(PartTool, "look")
			e.activity.beginCall(PartTool, "quick")()
			returned()
		}, "has waited for tool look for 30 s; "},
		{"a reward hangs", func(e *Episode) { e.activity.beginCall(PartReward, "") }, "has waited for reward for 30 s; "},
		// Reader 10, finding 3: the agent was said to be in an endless loop while it waited for a tool worker.
		{"no session is opened", func(e *Episode) {
			e.env.Tools, e.ticket.Limits.MaxTurns = []Tool{farTool{}}, 1
			_ = e.openSessions(context.Background())
		}, "has waited for a session of tool look at a worker for 30 s"},
		// Finding 13.6.
		{"no place is free", func(e *Episode) { e.HoldTime("a place for its sandbox (sandbox.most)") }, "has waited for a place for its sandbox (sandbox.most) for 35 s"},
		// Reader 11, finding 2: the agent was said to be in an endless loop where no agent had come.
		{"nobody comes", func(e *Episode) { e.NoteUnclaimed(true) }, "no agent has come for it (start more agents, or lower producer.concurrency)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watchTask(t)
				for i := range 3 {
					w.play(fmt.Sprintf("e%d", i), 2*time.Second, 2)
				}
				pass(4*time.Second - time.Millisecond) // a look comes 30 s and a millisecond after the begin
				e := w.begin("loop")
				go c.loop(e.episode)
				pass(time.Millisecond)
				go w.play("later", time.Second, 1)
				pass(time.Minute)
				synctest.Wait()
				require.NotEmpty(t, w.reports)
				require.Equal(t, schemas.FailingOverdue, w.reports[0].Kind())
				require.Equal(t, "things", w.reports[0].Task)
				want := c.want
				if strings.HasSuffix(want, "; ") {
					want += "the newest 4 episodes took at most 2 s and 2 requests. An endless loop?"
				}
				ran := "30 s: "
				if strings.HasSuffix(want, "35 s") { // 30 s after the last episode that ended
					ran = "35 s: "
				}
				require.Equal(t, "loop has run for "+ran+want, strings.Replace(w.reports[0].Last, "agent mine ", "", 1))
				w.worker.running.removeEpisode(e)
				pass(overdueSpell + lookEvery)
				synctest.Wait()
				require.True(t, w.reports[len(w.reports)-1].Over)
			})
		})
	}
}

// An engine that hangs is not the agent's: its own alarms name it.
func TestAnEpisodeThatWaitsForThePolicyIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchTask(t)
		w.play("e", time.Second, 1)
		e := w.begin("waits")
		e.episode.activity.beginRequest()
		pass(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, w.reports)
	})
}

// Episodes that wait in a row for a service that takes few at once are not overdue while the row moves on.
func TestEpisodesThatWaitForAFreeAgentAreNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchTask(t)
		var waiting []*runningEpisode
		for i := range 100 {
			waiting = append(waiting, w.begin(fmt.Sprintf("e%d", i)))
			pass(time.Millisecond)
		}
		for _, e := range waiting { // one at a time
			pass(2 * time.Second)
			w.end(e, schemas.StopAnswer)
		}
		synctest.Wait()
		require.Empty(t, w.reports)
	})
}

// Slow agents whose episodes differ much in length raise no alarm: what counts is how long the task's own episodes take. The one report that
// a slow agent may have is from before its first episode has ended, and leaves the question open.
func TestASlowAgentIsNoLoop(t *testing.T) {
	for _, c := range []struct {
		name   string
		median time.Duration
		asks   int
		most   int
	}{
		{"seconds", 2 * time.Second, 3, 0},
		{"half a minute, asking now and then", 30 * time.Second, 4, 0},
		{"minutes without a request", 3 * time.Minute, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watchTask(t)
				random := rand.New(rand.NewPCG(1, 2))
				done := make(chan struct{})
				const slots = 16
				for slot := range slots {
					var took []time.Duration
					for range 40 {
						took = append(took, time.Duration(float64(c.median)*math.Exp(0.7*random.NormFloat64())))
					}
					go func() {
						defer func() { done <- struct{}{} }()
						for i, d := range took {
							id := fmt.Sprintf("e%d.%d", slot, i)
							if c.asks > 0 {
								w.play(id, d, c.asks)
								continue
							}
							e := w.begin(id)
							pass(d)
							w.end(e, schemas.StopAnswer)
						}
					}()
				}
				for range slots {
					<-done
				}
				synctest.Wait()
				var first []schemas.Failing
				for _, f := range w.reports {
					if !f.Over {
						first = append(first, f)
					}
				}
				require.LessOrEqual(t, len(first), 2*c.most, "%v", first)
				for _, f := range first {
					require.Contains(t, f.Last, "no episode of the task has ended yet. An endless loop, or a slow agent?")
				}
			})
		})
	}
}

// An agent that only its limits end is named with its task, though other tasks do well. Limits that end a part of the episodes are no alarm.
func TestALimitThatEndsNearlyEveryEpisodeIsReported(t *testing.T) {
	var reports []schemas.Failing
	l := limitWatch{task: "things", agent: "mine", report: func(f schemas.Failing) { reports = append(reports, f) }}
	for i := range 2 * limitedWindow {
		stop := schemas.StopAnswer
		if i%4 > 0 {
			stop = schemas.StopTurns
		}
		l.addStop(stop)
	}
	require.Empty(t, reports, "three of four")
	for range limitedWindow {
		l.addStop(schemas.StopTurns)
	}
	require.Len(t, reports, 1)
	require.Equal(t, schemas.FailingLimited, reports[0].Kind())
	require.Equal(t, "agent mine was stopped by turns. It may ask on and on: bound its loop, or raise trainer.limits.max_turns", reports[0].Last)
	require.GreaterOrEqual(t, float64(reports[0].Limited), limitedShare*float64(reports[0].Ended))
	for range limitedWindow {
		l.addStop(schemas.StopAnswer)
	}
	require.Len(t, reports, 2)
	require.True(t, reports[1].Over)
	for range limitedWindow {
		l.addStop(schemas.StopFormat)
	}
	require.Len(t, reports, 2, "an episode without an answer is no limit")

	early := limitWatch{report: func(schemas.Failing) { t.Error("too few") }}
	for range leastLimited - 1 {
		early.addStop(schemas.StopTokens)
	}
}

// Finding 15a.3: with every tool worker gone nothing was reported where episodes are long, or where an attempt's wait ends sooner than an
// episode is overdue. Where rooms come free, a wait is no fault.
func TestEpisodesForWhichNobodyHasRoomAreReported(t *testing.T) {
	for _, limit := range []time.Duration{12 * time.Second, 20 * time.Second, 2 * time.Minute} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watchTask(t)
				w.play("before", 40*time.Second, 4)
				began := time.Now()
				for attempt := 0; time.Since(began) < 6*time.Minute; attempt++ {
					e := w.begin(fmt.Sprintf("e%d", attempt))
					goOn := e.episode.HoldTime("a session of tool look")
					pass(limit)
					goOn()
					w.worker.running.removeEpisode(e)
					pass(time.Second)
				}
				synctest.Wait()
				require.NotEmpty(t, w.reports)
				require.Contains(t, w.reports[0].Last, "has waited for a session of tool look for")
				last := w.reports[len(w.reports)-1]
				require.False(t, last.Over)
				require.Greater(t, len(w.reports), 1, "it is reported again while it goes on")
				if limit < leastOverdue {
					require.Contains(t, last.Last, "; no episode of the task has gone on for ")
				}

				e := w.begin("room")
				answered := e.episode.activity.beginRequest()
				pass(2 * overdueSpell)
				answered()
				w.end(e, schemas.StopAnswer)
				synctest.Wait()
				require.True(t, w.reports[len(w.reports)-1].Over)
			})
		})
	}
}

func TestEpisodesThatTakeTurnsForRoomAreNotReported(t *testing.T) {
	for _, c := range []struct {
		episodes, rooms int
		takes, before   time.Duration
	}{{4, 1, 40 * time.Second, 25 * time.Second}, {12, 2, 10 * time.Second, 4 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := watchTask(t)
			w.play("before", c.before, 4)
			room, done := make(chan struct{}, c.rooms), make(chan struct{})
			for i := range c.episodes {
				go func() {
					e := w.begin(fmt.Sprintf("e%d", i))
					goOn := e.episode.HoldTime("a session of tool look")
					room <- struct{}{}
					goOn()
					answered := e.episode.activity.beginRequest()
					pass(c.takes)
					answered()
					<-room
					w.end(e, schemas.StopAnswer)
					done <- struct{}{}
				}()
			}
			for range c.episodes {
				<-done
			}
			synctest.Wait()
			require.Empty(t, w.reports)
		})
	}
}
