package toolworker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

const (
	shared = "weir.test.tools"
	ofA    = shared + ".a"
	every  = shared + ".all.control"
)

func TestASessionIsServedByOneWorker(t *testing.T) {
	f := newField(t)
	counts := []*counter{{}, {}, {}}
	for i, c := range counts {
		f.worker(string(rune('a'+i)), nil, c)
	}
	tool := f.caller(toolworker.ClientOptions{}, counts[0])[0]
	const episodes = 24
	var all sync.WaitGroup
	for i := range episodes {
		all.Go(func() {
			name := fmt.Sprintf("g1-0-%d", i)
			open(t, tool, name)
			for want := range 5 {
				require.Equal(t, fmt.Sprint(want+1), call(t, tool, name))
			}
			end(t, tool, name)
		})
	}
	all.Wait()
	served := 0
	for _, c := range counts {
		require.Empty(t, c.sums, "every session was closed")
		require.Len(t, c.calls, 5*len(c.opened))
		served += len(c.opened)
		for _, s := range c.opened {
			require.Equal(t, told(s.Episode), s)
		}
	}
	require.Equal(t, episodes, served)
}

// Invariant: a request of a session is carried out once, however often it comes.
func TestInvariantARequestOfASessionIsCarriedOutOnceHoweverOftenItComes(t *testing.T) {
	f := newField(t)
	c := &counter{}
	w := f.worker("a", nil, c)
	nc := f.connect().NATS()
	for range 3 {
		r := f.raw(nc, ofA, opening("e", "1"))
		require.Equal(t, schemas.ToolOK, r.Outcome)
		require.Equal(t, "a", r.Worker)
	}
	for range 3 {
		require.Equal(t, "1", f.raw(nc, ofA, asking("e", "1", 1, 0)).Observation.Text)
	}
	require.Equal(t, "2", f.raw(nc, ofA, asking("e", "1", 2, 0)).Observation.Text)
	require.Equal(t, "1", f.raw(nc, ofA, asking("e", "1", 1, 0)).Observation.Text, "an old one that comes late")
	require.Equal(t, "3", f.raw(nc, ofA, asking("e", "1", 3, 3)).Observation.Text)
	r := f.raw(nc, ofA, asking("e", "1", 1, 0))
	require.Equal(t, schemas.ToolRefused, r.Outcome, "its reply was said to have come: it is neither kept nor made again")
	require.Contains(t, r.Error, "request 1 was answered")
	require.Equal(t, 3, c.called())
	require.Len(t, c.opened, 1)
	require.InDelta(t, 5, w.value(t, "weir_tool_repeats_total"), 0)

	// One that comes again while it is carried out is not begun again.
	begun, goOn := make(chan struct{}), make(chan struct{})
	c.call = func(_ context.Context, call producers.Call) (producers.Observation, error) {
		close(begun)
		<-goOn
		return c.add(call)
	}
	answers := make(chan string, 2)
	for range 2 {
		other := f.connect().NATS()
		data, err := schemas.Marshal(asking("e", "1", 4, 3))
		require.NoError(t, err)
		sub, err := other.SubscribeSync(other.NewInbox())
		require.NoError(t, err)
		require.NoError(t, other.PublishRequest(ofA, sub.Subject, data))
		require.NoError(t, other.Flush())
		go func() {
			for {
				m, err := sub.NextMsg(time.Minute)
				if err != nil {
					return
				}
				r := new(schemas.ToolReply)
				if schemas.Unmarshal(m.Data, r) == nil && r.Done {
					answers <- r.Observation.Text
					return
				}
			}
		}()
		<-begun
	}
	eventually(t, "the second is known", func() bool { return w.value(t, "weir_tool_repeats_total") == 6 })
	close(goOn)
	require.Equal(t, "4", <-answers, "who asked last is answered")
	require.Equal(t, 4, c.called())
}

func TestATicketThatIsTakenAgainSeesNothingOfTheFirstRollout(t *testing.T) {
	f := newField(t)
	c := &counter{}
	first := f.worker("a", func(cfg *toolworker.Config) { cfg.Grace = 10 * time.Minute }, c)
	dead := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, dead, "e")
	require.Equal(t, "1", call(t, dead, "e"))

	// Another producer takes the ticket, as after the death of the first: at the same worker, and then at another.
	again := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, again, "e")
	require.Equal(t, "1", call(t, again, "e"))
	require.Equal(t, []string{"open e", "close e", "open e"}, c.did())
	_, err := dead.Call(t.Context(), producers.Call{Episode: "e"})
	require.ErrorIs(t, err, producers.ErrUnavailable, "a rollout whose lease was lost does not reach into the other's session")
	require.ErrorContains(t, err, "opened anew")
	end(t, dead, "e")
	require.Equal(t, "2", call(t, again, "e"), "nor does its close end it")

	other := &counter{}
	f.worker("b", nil, other)
	first.stop() // it takes no new session, and keeps those that it has
	third := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, third, "e")
	require.Equal(t, []string{"open e"}, other.did())
	eventually(t, "what was left at the first worker is closed", func() bool { return len(c.did()) == 4 })
	require.Equal(t, "1", call(t, third, "e"))
}

func TestAFullWorkerRefusesAndTheNextIsAsked(t *testing.T) {
	f := newField(t)
	one := func(cfg *toolworker.Config) { cfg.Sessions = 1 }
	a, b := &counter{}, &counter{}
	wa, wb := f.worker("a", one, a), f.worker("b", one, b)
	tool := f.caller(toolworker.ClientOptions{}, a)[0]
	open(t, tool, "e1")
	open(t, tool, "e2")
	require.Len(t, a.opened, 1)
	require.Len(t, b.opened, 1)

	// All are full: the third waits until a session is closed.
	third := make(chan error, 1)
	go func() { third <- tool.(producers.SessionTool).Open(t.Context(), told("e3")) }()
	eventually(t, "it was refused by both", func() bool {
		return wa.value(t, "weir_tool_refusals_total", "sessions") > 0 && wb.value(t, "weir_tool_refusals_total", "sessions") > 0
	})
	end(t, tool, "e1")
	require.NoError(t, <-third)
	require.Equal(t, "1", call(t, tool, "e3"))

	// Who is about to stop does not wait.
	ending := make(chan struct{})
	close(ending)
	err := f.caller(toolworker.ClientOptions{Ending: ending}, a)[0].(producers.SessionTool).Open(t.Context(), told("e4"))
	require.ErrorIs(t, err, producers.ErrUnavailable)
	// Nor does it after its time.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("its time is over"))
	defer cancel()
	err = tool.(producers.SessionTool).Open(ctx, told("e5"))
	require.ErrorContains(t, err, "its time is over")
	require.ErrorIs(t, err, producers.ErrNoRoom)
}

// Finding 13.2: an episode that no worker took has not failed; an episode whose session a worker begins to open, and does not come to an end with, has.
func TestAnOpeningThatNoWorkerTookFoundNoRoom(t *testing.T) {
	f := newField(t)
	lasting := errors.New("its time is over")
	tool := f.caller(toolworker.ClientOptions{Again: 10 * time.Second}, &counter{})[0].(producers.SessionTool)
	tryOpen := func(until context.Context) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		defer context.AfterFunc(until, func() { cancel(lasting) })()
		return tool.Open(ctx, told("e"))
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := tryOpen(soon)
	require.ErrorIs(t, err, lasting)
	require.ErrorIs(t, err, producers.ErrNoRoom, "there is none")

	// So it is where a worker has got the request, and said nothing of it yet (15a.7).
	silent, arrive := context.WithCancel(t.Context())
	run := f.attach()
	got, err := run.NATS().Subscribe(run.ToolsSubject(), func(*nats.Msg) { arrive() })
	require.NoError(t, err)
	require.NoError(t, run.NATS().Flush())
	err = tryOpen(silent)
	require.ErrorIs(t, err, lasting)
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.NoError(t, got.Unsubscribe())
	require.NoError(t, run.NATS().Flush())

	begun, begin := context.WithCancel(t.Context())
	nc := f.attach().NATS()
	said := 0
	heard, err := nc.Subscribe(">", func(m *nats.Msg) {
		r := new(schemas.ToolReply)
		if schemas.Unmarshal(m.Data, r) == nil && r.Worker == "a" && !r.Done {
			if said++; said == 2 { // the caller has heard the first
				begin()
			}
		}
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, heard.Unsubscribe()) }()
	require.NoError(t, nc.Flush())
	done := make(chan struct{})
	defer close(done)
	f.worker("a", nil, openingFor{&counter{}, func() { <-done }})
	err = tryOpen(begun)
	require.ErrorIs(t, err, lasting)
	require.NotErrorIs(t, err, producers.ErrNoRoom)
}

// openingFor is a counter whose sessions take as long to open as wait does.
type openingFor struct {
	*counter
	wait func()
}

func (o openingFor) Open(ctx context.Context, s producers.Session) error {
	o.wait()
	return o.counter.Open(ctx, s)
}

// Finding 13 R7: sessions that take sandboxes are admitted by how many they take, the others as without; a session that takes more than all is alone.
func TestAWorkerTakesNoMoreSessionsThanItHasSandboxesFor(t *testing.T) {
	f := newField(t)
	run := f.attach()
	tools := []producers.Tool{&counter{}}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	config := toolworker.DefaultConfig()
	config.Name, config.Grace = "a", time.Millisecond
	go func() {
		ended <- toolworker.Run(ctx, config, toolworker.Deps{
			Stream: run, Tools: map[string][]producers.Tool{"two": tools, "one": tools, "none": tools, "four": tools},
			Sandboxes: 3, Places: map[string]int{"two": 2, "one": 1, "four": 4}, Ready: func(error) { close(ready) },
		})
	}()
	<-ready
	for i, c := range []struct {
		op   schemas.ToolOp
		task string
		want schemas.ToolOutcome
	}{
		{schemas.ToolOpOpen, "two", schemas.ToolOK},
		{schemas.ToolOpOpen, "none", schemas.ToolOK},
		{schemas.ToolOpOpen, "one", schemas.ToolOK},
		{schemas.ToolOpClose, "none", schemas.ToolOK},
		{schemas.ToolOpOpen, "two again", schemas.ToolBusy},
		{schemas.ToolOpOpen, "none", schemas.ToolOK},
		{schemas.ToolOpClose, "one", schemas.ToolOK},
		{schemas.ToolOpOpen, "two again", schemas.ToolBusy},
		{schemas.ToolOpOpen, "one later", schemas.ToolBusy}, // finding 13.9: the sandbox is kept for the session that waits
		{schemas.ToolOpClose, "two", schemas.ToolOK},
		{schemas.ToolOpOpen, "two again", schemas.ToolOK},
		{schemas.ToolOpOpen, "four", schemas.ToolBusy},
		{schemas.ToolOpClose, "two again", schemas.ToolOK},
		{schemas.ToolOpOpen, "four", schemas.ToolOK},
		{schemas.ToolOpOpen, "one", schemas.ToolBusy},
		{schemas.ToolOpClose, "four", schemas.ToolOK},
		{schemas.ToolOpOpen, "one", schemas.ToolOK},
		{schemas.ToolOpOpen, "one beside", schemas.ToolOK},
		{schemas.ToolOpOpen, "two elsewhere", schemas.ToolBusy},
		{schemas.ToolOpOpen, "one last", schemas.ToolBusy},
		{schemas.ToolOpEnd, "two elsewhere", ""}, // another worker has taken it, so that the sandbox is kept for nobody (15a.7)
		{schemas.ToolOpOpen, "one last", schemas.ToolOK},
	} {
		task, _, _ := strings.Cut(c.task, " ")
		ask := &schemas.ToolRequest{Run: "test", Session: strings.ReplaceAll(c.task, " ", "-"), Opening: "x", Op: c.op, Task: task}
		if c.op == schemas.ToolOpClose {
			ask.Sequence, ask.Answered = 1, 1
		}
		if c.op == schemas.ToolOpEnd {
			data, err := schemas.Marshal(ask)
			require.NoError(t, err)
			require.NoError(t, run.NATS().Publish(run.ToolsSubject()+".all.control", data))
			continue
		}
		reply := f.raw(run.NATS(), run.ToolsSubject(), ask)
		require.Equal(t, c.want, reply.Outcome, "%d: %s: %s", i, c.task, reply.Error)
	}
	stop()
	require.NoError(t, <-ended)
}

// Finding 15a.4: a worker took more sessions than their tools had room for, and those beyond waited with their first call, in their own time.
func TestAWorkerTakesNoMoreSessionsThanItsToolsHaveRoomFor(t *testing.T) {
	f := newField(t)
	run := f.attach()
	tools := []producers.Tool{&counter{}}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	config := toolworker.DefaultConfig()
	config.Name, config.Grace = "a", time.Millisecond
	go func() {
		ended <- toolworker.Run(ctx, config, toolworker.Deps{
			Stream: run, Tools: map[string][]producers.Tool{"two": tools, "one": tools, "any": tools},
			Most: map[string]int{"two": 2, "one": 1}, Ready: func(error) { close(ready) },
		})
	}()
	<-ready
	for i, c := range []struct {
		op      schemas.ToolOp
		session string
		want    schemas.ToolOutcome
	}{
		{schemas.ToolOpOpen, "two-a", schemas.ToolOK},
		{schemas.ToolOpOpen, "one-a", schemas.ToolOK},
		{schemas.ToolOpOpen, "one-b", schemas.ToolBusy},
		{schemas.ToolOpOpen, "two-b", schemas.ToolOK},
		{schemas.ToolOpOpen, "two-c", schemas.ToolBusy},
		{schemas.ToolOpOpen, "any-a", schemas.ToolOK},
		{schemas.ToolOpOpen, "any-b", schemas.ToolOK},
		{schemas.ToolOpClose, "one-a", schemas.ToolOK},
		{schemas.ToolOpOpen, "two-c", schemas.ToolBusy},
		{schemas.ToolOpOpen, "one-b", schemas.ToolOK},
		{schemas.ToolOpClose, "two-a", schemas.ToolOK},
		{schemas.ToolOpOpen, "two-c", schemas.ToolOK},
	} {
		task, _, _ := strings.Cut(c.session, "-")
		ask := &schemas.ToolRequest{Run: "test", Session: c.session, Opening: "x", Op: c.op, Task: task}
		if c.op == schemas.ToolOpClose {
			ask.Sequence, ask.Answered = 1, 1
		}
		reply := f.raw(run.NATS(), run.ToolsSubject(), ask)
		require.Equal(t, c.want, reply.Outcome, "%d: %s: %s", i, c.session, reply.Error)
		if c.want == schemas.ToolBusy {
			require.Contains(t, reply.Error, "raise workers of tools.starlark")
		}
	}
	stop()
	require.NoError(t, <-ended)
}

// loud is a run whose log a test reads.
type loud struct {
	toolworker.Stream
	log *slog.Logger
}

func (l loud) Log() *slog.Logger { return l.log }

// lines are what was logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

// Reader 10, finding 3: a run whose tool workers had all gone said that its agents loop without end.
func TestEpisodesThatNoWorkerTakesAreReported(t *testing.T) {
	f := newField(t)
	for _, c := range []struct{ name, want string }{
		{"none is there", "start weir tools with this configuration"}, {"all are full", "raise toolworker.sessions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "all are full" {
				f.worker("a", func(cfg *toolworker.Config) { cfg.Sessions = 1 }, &counter{})
				open(t, f.caller(toolworker.ClientOptions{}, &counter{})[0], "e1")
			}
			said := make(lines, 1)
			client := toolworker.NewClient(loud{f.attach(), slog.New(slog.NewTextHandler(said, nil))}, toolworker.ClientOptions{Warn: time.Millisecond})
			defer client.Close()
			link := new(toolworker.Link)
			link.Attach(client)
			tool := link.Place(&counter{})
			require.Contains(t, tool.(producers.Apart).Place(), "is weir tools up")
			ctx, stop := context.WithCancel(t.Context())
			var opening sync.WaitGroup
			for i := range 3 {
				opening.Go(func() { _ = tool.(producers.SessionTool).Open(ctx, told(fmt.Sprint("w", i))) })
			}
			require.Contains(t, <-said, c.want)
			stop()
			opening.Wait()
			require.Empty(t, said, "once")
		})
	}
}

func TestAFullQueueRefusesACallAndItIsAskedAgain(t *testing.T) {
	f := newField(t)
	hold := make(chan struct{})
	c := &counter{}
	c.call = func(_ context.Context, call producers.Call) (producers.Observation, error) {
		<-hold
		return c.add(call)
	}
	w := f.worker("a", func(cfg *toolworker.Config) { cfg.Calls, cfg.Queue = 1, 1 }, c)
	tool := f.caller(toolworker.ClientOptions{}, c)[0]
	said := make(chan string, 4)
	for i := range 4 {
		open(t, tool, fmt.Sprint("e", i))
	}
	for i := range 4 {
		go func() { said <- call(t, tool, fmt.Sprint("e", i)) }()
	}
	eventually(t, "one is worked on, one waits, two were refused", func() bool {
		return c.called() == 1 && w.value(t, "weir_tool_calls_waiting") == 1 && w.value(t, "weir_tool_refusals_total", "queue") >= 2
	})
	close(hold)
	for range 4 {
		require.Equal(t, "1", <-said, "each was carried out once")
	}
	require.Equal(t, 4, c.called())
}

func TestASlowCallIsNoLostWorker(t *testing.T) {
	f := newField(t)
	c := &counter{}
	over := make(chan struct{})
	c.call = func(_ context.Context, call producers.Call) (producers.Observation, error) {
		<-over
		return c.add(call)
	}
	f.worker("a", nil, c)
	// The worker says every second that it works on it.
	tool := f.caller(toolworker.ClientOptions{Again: time.Second, Lost: 2500 * time.Millisecond}, c)[0]
	open(t, tool, "e")
	time.AfterFunc(5*time.Second, func() { close(over) })
	require.Equal(t, "1", call(t, tool, "e"))
	require.Equal(t, 1, c.called())
}

func TestALostWorkerIsTheMachinerysFailure(t *testing.T) {
	f := newField(t)
	c := &counter{}
	begun := make(chan struct{})
	c.call = func(ctx context.Context, _ producers.Call) (producers.Observation, error) {
		close(begun)
		<-ctx.Done()
		return producers.Observation{}, ctx.Err()
	}
	w := f.worker("a", nil, c)
	tool := f.caller(toolworker.ClientOptions{Lost: time.Second}, c)[0]
	open(t, tool, "e")
	failed := make(chan error, 1)
	go func() {
		_, err := tool.Call(t.Context(), producers.Call{Episode: "e"})
		failed <- err
	}()
	<-begun
	w.run.NATS().Close() // as a killed process does
	err := <-failed
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorIs(t, err, producers.ErrMayHaveRun)
	require.ErrorContains(t, err, "the tool worker is lost")
	require.ErrorIs(t, <-w.ended, streams.ErrClosed)
	w.ended <- nil
	// A call that begins when the worker is gone reaches nobody.
	_, err = tool.Call(t.Context(), producers.Call{Episode: "e"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.NotErrorIs(t, err, producers.ErrMayHaveRun)
	require.Error(t, tool.(producers.SessionTool).Close(t.Context(), "e"), "it is counted as not closed")
}

func TestABrokerThatIsAwayForAWhileLosesNoSession(t *testing.T) {
	f := newField(t)
	c := &counter{}
	w := f.worker("a", nil, c)
	tool := f.caller(toolworker.ClientOptions{Lost: time.Minute}, c)[0]
	open(t, tool, "e")
	require.Equal(t, "1", call(t, tool, "e"))
	f.broker.Shutdown()
	said := make(chan string, 1)
	go func() { said <- call(t, tool, "e") }()
	f.restart()
	require.Equal(t, "2", <-said)
	require.Equal(t, 2, c.called())
	require.InDelta(t, 1, w.value(t, "weir_tool_sessions"), 0)
}

func TestAnIdleSessionExpires(t *testing.T) {
	f := newField(t)
	c := &counter{}
	w := f.worker("a", func(cfg *toolworker.Config) { cfg.Idle = 50 * time.Millisecond }, c)
	tool := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, tool, "e")
	eventually(t, "it is closed", func() bool { return w.value(t, "weir_tool_sessions_ended_total", "expired") == 1 })
	require.Equal(t, []string{"open e", "close e"}, c.did())
	require.Zero(t, w.value(t, "weir_tool_sessions"))
	_, err := tool.Call(t.Context(), producers.Call{Episode: "e"})
	require.ErrorIs(t, err, producers.ErrUnavailable, "its episode is given back")
	require.ErrorContains(t, err, "toolworker.idle, 50ms")
	require.Zero(t, c.called())
	end(t, tool, "e")
}

func TestAWorkerThatIsToldToStopLetsWhatItHasEnd(t *testing.T) {
	f := newField(t)
	c := &counter{}
	begun, hold := make(chan struct{}), make(chan struct{})
	c.call = func(_ context.Context, call producers.Call) (producers.Observation, error) {
		if call.Index == 0 {
			close(begun)
			<-hold
		}
		return c.add(call)
	}
	w := f.worker("a", func(cfg *toolworker.Config) { cfg.Grace = 10 * time.Minute }, c)
	tool := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, tool, "e")
	said := make(chan string, 1)
	go func() { said <- call(t, tool, "e") }()
	<-begun
	w.stop()
	// No session is opened: the next goes to another worker, or waits for one.
	other := &counter{}
	f.worker("b", nil, other)
	for i := range 8 {
		open(t, tool, fmt.Sprint("later", i))
	}
	eventually(t, "all went to the other", func() bool { return len(other.did()) == 8 })
	close(hold)
	require.Equal(t, "1", <-said, "the call in progress ends")
	o, err := tool.Call(t.Context(), producers.Call{Episode: "e", Index: 1})
	require.NoError(t, err, "and the episode goes on")
	require.Equal(t, "2", o.Text)
	select {
	case err := <-w.ended:
		t.Fatalf("it left an open session: %v", err)
	default:
	}
	end(t, tool, "e")
	w.drained(t)
	require.Equal(t, []string{"open e", "close e"}, c.did())
}

func TestAfterTheGraceSessionsAreHandedBack(t *testing.T) {
	f := newField(t)
	c := &counter{}
	begun := make(chan struct{})
	c.call = func(ctx context.Context, _ producers.Call) (producers.Observation, error) {
		close(begun)
		<-ctx.Done()
		return producers.Observation{}, ctx.Err()
	}
	w := f.worker("a", func(cfg *toolworker.Config) { cfg.Grace = time.Millisecond }, c)
	tool := f.caller(toolworker.ClientOptions{Lost: 3 * time.Second}, c)[0]
	open(t, tool, "idle")
	open(t, tool, "busy")
	failed := make(chan error, 1)
	go func() {
		_, err := tool.Call(t.Context(), producers.Call{Episode: "busy"})
		failed <- err
	}()
	<-begun
	w.drained(t)
	require.ErrorIs(t, <-failed, producers.ErrUnavailable)
	_, err := tool.Call(t.Context(), producers.Call{Episode: "idle"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.InDelta(t, 2, w.value(t, "weir_tool_sessions_ended_total", "drained"), 0)
	require.Empty(t, c.sums)
}

func TestWhatAToolSaysComesAsItWas(t *testing.T) {
	f := newField(t)
	reward, answer := -0.25, "42"
	whole := producers.Observation{
		Text: "a\nb", Reward: &reward, Done: true, Answer: &answer, Outputs: 2, Errors: 1, Notes: "n", Metrics: map[string]float64{"cells": 3},
	}
	c := &counter{}
	c.call = func(_ context.Context, call producers.Call) (producers.Observation, error) {
		switch call.Arguments {
		case "whole":
			return whole, nil
		case "told":
			return producers.Observation{}, errors.New("division by zero")
		case "away":
			return producers.Observation{}, fmt.Errorf("%w: the service is away", producers.ErrUnavailable)
		case "panic":
			panic("broken")
		case "nan":
			bad := 0.0
			bad /= bad
			return producers.Observation{Reward: &bad}, nil
		}
		return producers.Observation{Text: strings.Repeat("x", 9<<20)}, nil
	}
	w := f.worker("a", nil, c)
	tool := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, tool, "e")
	ask := func(arguments string) (producers.Observation, error) {
		return tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: arguments, Index: 3, Seed: 9, Run: "test"})
	}
	o, err := ask("whole")
	require.NoError(t, err)
	require.Equal(t, whole, o)
	require.Equal(t, producers.Call{Episode: "e", Arguments: "whole", Index: 3, Seed: 9, Run: "test"}, c.calls[0])
	_, err = ask("told")
	require.EqualError(t, err, "division by zero")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
	_, err = ask("away")
	require.ErrorIs(t, err, producers.ErrUnavailable)
	_, err = ask("panic")
	var panicked *producers.PanicError
	require.ErrorAs(t, err, &panicked)
	require.EqualError(t, err, "panic: broken")
	require.Contains(t, string(panicked.Stack), "worker_test.go")
	_, err = ask("nan")
	require.ErrorIs(t, err, producers.ErrUnavailable, "a reward that is no number never reaches a trajectory")
	_, err = ask("huge")
	require.ErrorContains(t, err, "bound the tool's output", "what is too large to be sent is refused by name")
	_, err = ask(strings.Repeat("x", 9<<20))
	require.ErrorContains(t, err, "the arguments have 9437184 bytes")
	require.NotErrorIs(t, err, producers.ErrUnavailable, "which is the agent's own doing")
	require.InDelta(t, 3, w.value(t, "weir_tool_calls_total", "ok", "count"), 0)
	require.InDelta(t, 1, w.value(t, "weir_tool_calls_total", "panicked", "count"), 0)
}

// files is a workspace.
type files struct{ *counter }

func (f files) Workspace(string) (producers.Workspace, bool) { return f, f.called() > 0 }

func (f files) ReadFile(_ context.Context, name string, limit int) ([]byte, error) {
	if name != "out.txt" {
		return nil, errors.New("no such file")
	}
	return bytes.Repeat([]byte("y"), limit), nil
}

func (f files) Run(_ context.Context, c producers.Command) (producers.Result, error) {
	if c.Argv[0] == "none" {
		return producers.Result{}, errors.New("no such program")
	}
	return producers.Result{Exit: 3, Stdout: c.Files["test.py"], Stderr: c.Stdin, TimedOut: c.Timeout == time.Second, Took: time.Minute}, nil
}

func TestAWorkspaceIsLookedIntoThroughTheWorker(t *testing.T) {
	f := newField(t)
	here := files{&counter{}}
	f.worker("a", nil, files{&counter{}})
	tool := f.caller(toolworker.ClientOptions{}, here)[0].(producers.Workspaced)
	open(t, tool, "e")
	_, there := tool.Workspace("e")
	require.False(t, there, "nothing was started yet")
	call(t, tool, "e")
	w, there := tool.Workspace("e")
	require.True(t, there)
	data, err := w.ReadFile(t.Context(), "out.txt", 3)
	require.NoError(t, err)
	require.Equal(t, []byte("yyy"), data)
	_, err = w.ReadFile(t.Context(), "none", 3)
	require.ErrorContains(t, err, "no such file")
	_, err = w.ReadFile(t.Context(), "out.txt", 9<<20)
	require.ErrorContains(t, err, "has 9437", "a file that is too large to be sent is refused")
	got, err := w.Run(t.Context(), producers.Command{Argv: []string{"python3"}, Stdin: []byte("in"), Files: map[string][]byte{"test.py": []byte("pass")}, Timeout: time.Second})
	require.NoError(t, err)
	require.Equal(t, producers.Result{Exit: 3, Stdout: []byte("pass"), Stderr: []byte("in"), TimedOut: true, Took: time.Minute}, got)
	_, err = w.Run(t.Context(), producers.Command{Argv: []string{"none"}})
	require.ErrorContains(t, err, "no such program")
	require.Zero(t, here.called(), "nothing ran at the producer")
	end(t, tool, "e")
	_, there = tool.Workspace("e")
	require.False(t, there)
}

// taker is a tool that takes a place here.
type taker struct{ *counter }

func (taker) TakePlace(context.Context, producers.Call, time.Duration) (bool, error) {
	return true, nil
}

// A session at a worker has its place there: a call takes none here.
func TestACallOfAWorkersSessionTakesNoPlaceHere(t *testing.T) {
	f := newField(t)
	for _, c := range []struct {
		tool producers.Tool
		own  bool
	}{{new(toolworker.Link).Place(taker{&counter{}}), true}, {f.caller(toolworker.ClientOptions{}, taker{&counter{}})[0], false}} {
		own, err := producers.TakePlaceOf(t.Context(), c.tool, producers.Call{Episode: "e"}, time.Second)
		require.NoError(t, err)
		require.Equal(t, c.own, own)
	}
}

func TestWithoutAClientAToolIsCalledHere(t *testing.T) {
	c := files{&counter{}}
	tool := new(toolworker.Link).Place(c)
	open(t, tool, "e")
	require.Equal(t, "1", call(t, tool, "e"))
	_, there := tool.(producers.Workspaced).Workspace("e")
	require.True(t, there)
	end(t, tool, "e")
	require.Equal(t, []string{"open e", "close e"}, c.did())
}

func TestASessionThatCannotBeOpenedIsTheMachinerysFailure(t *testing.T) {
	f := newField(t)
	c, second := &counter{}, named{&counter{fail: errors.New("no sandbox")}}
	w := f.worker("a", nil, c, second)
	tool := f.caller(toolworker.ClientOptions{}, c)[0]
	err := tool.(producers.SessionTool).Open(t.Context(), told("e"))
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "tool worker a: open a session of tool other: unavailable: no sandbox")
	eventually(t, "what was open is closed", func() bool { return w.value(t, "weir_tool_sessions") == 0 })
	require.Equal(t, []string{"open e", "close e"}, c.did())
	require.NotErrorIs(t, err, producers.ErrPrompt)
	second.set(fmt.Errorf("%w: world.script: none", producers.ErrPrompt))
	err = tool.(producers.SessionTool).Open(t.Context(), told("f"))
	require.ErrorIs(t, err, producers.ErrPrompt)
	require.NotErrorIs(t, err, producers.ErrUnavailable, "another try would do no better")
	require.ErrorContains(t, err, "tool worker a: open a session of tool other: the prompt's data are at fault: world.script: none")

	strange := told("e")
	strange.Task = "nobody's"
	err = tool.(producers.SessionTool).Open(t.Context(), strange)
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, `serves no tools of task "nobody's": give every role the same configuration`)
}

// named is a tool by another name.
type named struct{ *counter }

func (named) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "other"} }

func TestHostileRequestsAreRefusedAndHarmNobody(t *testing.T) {
	f := newField(t)
	c := &counter{}
	slowOpen := make(chan struct{})
	c.openings = func(s producers.Session) {
		if s.Episode == "slow" {
			<-slowOpen
		}
	}
	w := f.worker("a", nil, c)
	nc := f.connect().NATS()
	victim := f.caller(toolworker.ClientOptions{}, c)[0]
	open(t, victim, "e")

	require.Equal(t, schemas.ToolRefused, f.bytes(nc, ofA, []byte("junk")).Outcome)
	require.Equal(t, schemas.ToolRefused, f.bytes(nc, shared, nil).Outcome)
	foreign := opening("x", "1")
	foreign.Run = "other"
	require.Contains(t, f.raw(nc, ofA, foreign).Error, `run "other" at a tool worker of run "test"`)
	require.Equal(t, schemas.ToolRefused, f.raw(nc, ofA, &schemas.ToolRequest{Run: "test", Session: "e", Opening: "x", Op: "steal"}).Outcome)
	require.Equal(t, schemas.ToolGone, f.raw(nc, ofA, asking("e", "guessed", 1, 0)).Outcome)
	require.Equal(t, schemas.ToolGone, f.raw(nc, ofA, asking("nobody", "1", 1, 0)).Outcome)
	require.Equal(t, schemas.ToolOK, f.raw(nc, ofA, &schemas.ToolRequest{Run: "test", Session: "e", Opening: "x", Op: schemas.ToolOpClose, Sequence: 9}).Outcome)
	for _, subject := range []string{shared, ofA, every} {
		require.NoError(t, nc.Publish(subject, []byte("junk")), "without a reply")
	}
	// A session that is not open yet takes no call, and a tool that is not there is named.
	data, err := schemas.Marshal(opening("slow", "1"))
	require.NoError(t, err)
	require.NoError(t, nc.PublishRequest(ofA, nc.NewInbox(), data))
	eventually(t, "it is being opened", func() bool { return w.value(t, "weir_tool_sessions") == 2 })
	require.Contains(t, f.raw(nc, ofA, asking("slow", "1", 1, 0)).Error, "not open yet")
	close(slowOpen)
	require.Equal(t, schemas.ToolOK, f.raw(nc, ofA, opening("slow", "1")).Outcome)
	wrong := asking("slow", "1", 2, 0)
	wrong.Tool = "rm"
	require.Contains(t, f.raw(nc, ofA, wrong).Error, `serves no tool "rm"`)
	look := &schemas.ToolRequest{Run: "test", Session: "slow", Opening: "1", Op: schemas.ToolOpRead, Sequence: 3, File: "/etc/passwd", Limit: 1}
	require.Equal(t, schemas.ToolUnavailable, f.raw(nc, ofA, look).Outcome, "it has no workspace")

	require.Equal(t, "1", call(t, victim, "e"))
	require.Equal(t, 1, c.called())
	require.Positive(t, w.value(t, "weir_tool_refusals_total", "wrong"))
	require.Positive(t, w.value(t, "weir_tool_refusals_total", "gone"))
}

func TestAWorkerThatAnswersNonsenseIsTheMachinerysFailure(t *testing.T) {
	f := newField(t)
	liar := f.connect().NATS()
	var lie atomic.Pointer[schemas.ToolReply]
	_, err := liar.Subscribe(shared, answerWith(liar, &lie))
	require.NoError(t, err)
	require.NoError(t, liar.Flush())
	tool := f.caller(toolworker.ClientOptions{}, &counter{})[0].(producers.SessionTool)
	for name, r := range map[string]*schemas.ToolReply{
		"junk":             nil,
		"another session":  {Session: "x", Worker: "a", Done: true, Outcome: schemas.ToolOK},
		"another request":  {Session: "e", Worker: "a", Sequence: 4, Done: true, Outcome: schemas.ToolOK},
		"an unknown end":   {Session: "e", Worker: "a", Done: true, Outcome: "fine"},
		"nobody's":         {Session: "e", Done: true, Outcome: schemas.ToolOK},
		"refused for ever": {Session: "e", Worker: "a", Done: true, Outcome: schemas.ToolRefused, Error: "no"},
	} {
		lie.Store(r)
		require.ErrorIs(t, tool.Open(t.Context(), told("e")), producers.ErrUnavailable, name)
	}
}

func TestConfigFaults(t *testing.T) {
	require.NoError(t, toolworker.DefaultConfig().Validate())
	err := toolworker.Config{Queue: -1, Grace: -1}.Validate()
	for _, key := range []string{"sessions", "calls", "queue", "retry_after", "idle", "grace"} {
		require.ErrorContains(t, err, key)
	}
	cfg := toolworker.DefaultConfig()
	cfg.Name = "a.b"
	require.ErrorContains(t, toolworker.Run(t.Context(), cfg, toolworker.Deps{}), `worker "a.b"`)
}
