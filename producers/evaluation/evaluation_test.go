package evaluation_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

const (
	longWait  = 30 * time.Second
	shortWait = 10 * time.Millisecond
)

// What producers report is what the asker's own process would have.
func TestAReportByProducersIsThatOfThisProcess(t *testing.T) {
	t.Parallel()
	f := newField(t)
	envs := environments(&agent{}, 7)
	f.produce("p1", 2, envs)
	f.produce("p2", 2, envs)
	here, err := producers.Evaluate(t.Context(), envs["letters"], prompts(24), evalConfig())
	require.NoError(t, err)
	there, err := producers.EvaluateBy(t.Context(), evaluation.NewClient(f.attach(), evaluation.ClientOptions{}).Roll, prompts(24), evalConfig())
	require.NoError(t, err)
	require.Equal(t, here, there)
	require.Equal(t, 24, there.N)
	require.InDelta(t, 1, there.ExactMatch, 0)
	require.InDelta(t, 1, there.Turns, 0)
	require.Equal(t, "double", there.Samples[0].Turns[0].Tool)
	require.Equal(t, "bb", there.Samples[0].Turns[0].Observation)
}

// An answer larger than a message comes in parts.
func TestALargeAnswerComesInParts(t *testing.T) {
	t.Parallel()
	f := newField(t)
	envs := environments(&agent{}, 7)
	f.produce("p1", 2, envs)
	run := f.attach()
	text := strings.Repeat("a", int(run.NATS().MaxPayload())/8)
	cfg := evalConfig()
	cfg.Limits.MaxTokens = len(text) + 16
	r, err := producers.EvaluateBy(t.Context(), evaluation.NewClient(run, evaluation.ClientOptions{}).Roll,
		[]schemas.Prompt{{ID: "long", Text: text, Answers: []string{"bb"}}}, cfg)
	require.NoError(t, err)
	require.InDelta(t, 1, r.ExactMatch, 0)
}

// A producer that is killed while it works on tickets costs time alone: another works on them, and each counts once.
func TestATicketOfAKilledProducerGoesToAnother(t *testing.T) {
	t.Parallel()
	f := newField(t)
	kill, took := f.doomed()
	done := make(chan *producers.EvalReport, 1)
	go func() {
		r, err := producers.EvaluateBy(context.Background(), evaluation.NewClient(f.attach(), quick()).Roll, prompts(12), evalConfig())
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	require.Contains(t, <-took, "eval-validation-v7-")
	require.Contains(t, <-took, "eval-validation-v7-")
	f.produce("p2", 8, environments(&agent{}, 7))
	kill()
	r := <-done
	require.Equal(t, 12, r.N)
	require.Zero(t, r.Failed+r.Abandoned)
	require.InDelta(t, 1, r.ExactMatch, 0)
	require.Equal(t, 2, r.Retried)
}

// A producer that stops gives its tickets back, which is no failure of theirs.
func TestTicketsOfAProducerThatStopsGoToAnother(t *testing.T) {
	t.Parallel()
	f := newField(t)
	taken := make(chan string, 16)
	stop := f.produce("p1", 2, environments(&agent{hold: make(chan struct{}), took: func(id string) { taken <- id }}, 7))
	done := make(chan *producers.EvalReport, 1)
	go func() {
		r, err := producers.EvaluateBy(context.Background(), evaluation.NewClient(f.attach(), evaluation.ClientOptions{}).Roll, prompts(6), evalConfig())
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	<-taken
	<-taken
	stop()
	f.produce("p2", 2, environments(&agent{}, 7))
	r := <-done
	require.Equal(t, 6, r.N)
	require.Zero(t, r.Retried+r.Failed+r.Abandoned)
}

// No more run at once than the producer takes, and none while the run is paused.
func TestAProducerTakesSoManyAtOnceAndNoneWhilePaused(t *testing.T) {
	t.Parallel()
	f := newField(t)
	run := f.attach()
	pause := func(paused bool) {
		require.NoError(t, run.UpdateControl(t.Context(), func(*schemas.Control) *schemas.Control {
			return &schemas.Control{Run: "test", Paused: paused}
		}))
	}
	stop := f.produce("p0", 3, environments(&agent{}, 7))
	pause(true)
	require.Eventually(t, func() bool { // until the producer has heard of it
		return outcome(t, run.NATS(), run.EvaluationsSubject(), ticket(7)) == schemas.EvaluationDraining
	}, longWait, shortWait)
	stop()
	pause(false)

	hold := make(chan struct{})
	var taken atomic.Int64
	f.produce("p1", 3, environments(&agent{hold: hold, took: func(string) { taken.Add(1) }}, 7))
	done := make(chan *producers.EvalReport, 1)
	go func() {
		cfg := evalConfig()
		cfg.Concurrency = 12
		r, err := producers.EvaluateBy(context.Background(), evaluation.NewClient(f.attach(), evaluation.ClientOptions{}).Roll, prompts(12), cfg)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	require.Eventually(t, func() bool { return taken.Load() == 3 }, longWait, shortWait)
	require.Equal(t, schemas.EvaluationFull, outcome(t, run.NATS(), run.EvaluationsSubject(), ticket(7)))
	require.Equal(t, int64(3), taken.Load())
	close(hold)
	require.Equal(t, 12, (<-done).N)
}

// Where nobody can run a ticket any more it is abandoned: its version is gone, or the run is over.
func TestTicketsThatNobodyCanRunAreAbandoned(t *testing.T) {
	t.Parallel()
	f := newField(t)
	run := f.attach()
	kept := func(is bool) func(context.Context, int64) (bool, error) {
		return func(_ context.Context, version int64) (bool, error) {
			require.Equal(t, int64(7), version)
			return is, nil
		}
	}
	ended := make(chan struct{})
	close(ended)
	for name, options := range map[string]evaluation.ClientOptions{
		"version 7 is no longer stored": {Kept: kept(false)},
		"the run is over":               {Kept: kept(true), Ending: ended},
	} {
		r, err := producers.EvaluateBy(t.Context(), evaluation.NewClient(run, options).Roll, prompts(5), evalConfig())
		require.ErrorIs(t, err, producers.ErrAbandoned)
		require.ErrorContains(t, err, name)
		require.Equal(t, 5, r.Abandoned)
		require.Zero(t, r.N+r.Failed+r.Retried)
		require.Len(t, r.Samples, 5)
	}

	// A version that is gone before all are done: those that were done are kept apart from those that nobody can run.
	var served atomic.Int64
	broken := environments(&agent{}, 7)
	env := broken["letters"]
	env.Policy = flaky{policy{version: 7}, &served}
	broken["letters"] = env
	f.produce("p1", 1, broken)
	cfg := evalConfig()
	cfg.Concurrency = 1
	r, err := producers.EvaluateBy(t.Context(), evaluation.NewClient(run, evaluation.ClientOptions{Kept: kept(false)}).Roll, prompts(5), cfg)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0, 3}, []int{r.N, r.Failed, r.Abandoned})
	require.Equal(t, 2, r.Stops[schemas.StopAnswer])
}

// flaky is a policy whose engines let the version go after two episodes.
type flaky struct {
	policy
	served *atomic.Int64
}

func (f flaky) Generate(ctx context.Context, req *schemas.GenerateRequest) (*generate.Result, error) {
	if f.served.Add(1) > 2 {
		return nil, errors.New("version 7: no weights were published")
	}
	return f.policy.Generate(ctx, req)
}

// What hostile producers answer is used only where it is a rollout of the ticket by its version.
func TestAnAnswerThatIsNotToTheTicketIsRefused(t *testing.T) {
	t.Parallel()
	f := newField(t)
	asked := ticket(7)
	trajectory, _, err := producers.Rollout(t.Context(), asked, environments(&agent{}, 7)["letters"])
	require.NoError(t, err)
	trajectory.Producer = "p"
	turns := []schemas.EvaluationTurn{{Text: "b", Tool: "double", Arguments: "b", Observation: "bb"}}
	for name, c := range map[string]struct {
		trajectory func(*schemas.Trajectory)
		answer     func(*schemas.Evaluation)
		want       string
	}{
		"of another ticket":       {func(t *schemas.Trajectory) { t.ID = "g000007-a0-1" }, nil, "a trajectory of run"},
		"of another run":          {func(t *schemas.Trajectory) { t.Run = "other" }, nil, "a trajectory of run"},
		"of another prompt":       {func(t *schemas.Trajectory) { t.PromptID = "q9" }, nil, "a trajectory of run"},
		"by a newer version":      {func(t *schemas.Trajectory) { t.Segments[0].Versions[1] = 8 }, nil, "versions 8 to 8 sampled it"},
		"by no version":           {func(t *schemas.Trajectory) { t.Segments, t.Turns = nil, nil }, nil, "versions -1 to -1 sampled it"},
		"at another temperature":  {func(t *schemas.Trajectory) { t.Segments[0].Temperature = 1 }, nil, "temperature 1"},
		"with a reward of NaN":    {func(t *schemas.Trajectory) { t.Reward = math.NaN() }, nil, "reward"},
		"with more turns in text": {nil, func(e *schemas.Evaluation) { e.Turns = append(e.Turns, e.Turns...) }, "2 turns in text of 1"},
		"to another ticket":       {nil, func(e *schemas.Evaluation) { e.Ticket = "eval-other" }, "eval-other"},
		"of an unknown outcome":   {nil, func(e *schemas.Evaluation) { e.Outcome = "great" }, "no such outcome"},
		"with bytes for rollout":  {nil, func(e *schemas.Evaluation) { e.Trajectory = []byte("{}") }, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := schemas.Marshal(trajectory)
			require.NoError(t, err)
			changed := new(schemas.Trajectory)
			require.NoError(t, schemas.Unmarshal(data, changed))
			if c.trajectory != nil {
				c.trajectory(changed)
			}
			data, err = schemas.Marshal(changed)
			require.NoError(t, err)
			e := &schemas.Evaluation{Run: "test", Ticket: asked.ID, Producer: "p", Outcome: schemas.EvaluationDone, Trajectory: data, Turns: turns}
			if c.answer != nil {
				c.answer(e)
			}
			answer, err := schemas.Marshal(e)
			require.NoError(t, err)
			run := f.attach()
			sub := answering(t, run.NATS(), run.EvaluationsSubject(), func(m *nats.Msg) { reply(run.NATS(), m.Reply, "1/1", answer) })
			defer sub()
			_, _, err = evaluation.NewClient(f.attach(), evaluation.ClientOptions{}).Roll(t.Context(), asked)
			require.ErrorContains(t, err, c.want)
			var failure *evaluation.FailureError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "unusable", failure.Reason())
		})
	}

	// A trajectory by itself, as for the stream, is no answer.
	data, err := schemas.Marshal(trajectory)
	require.NoError(t, err)
	run := f.attach()
	defer answering(t, run.NATS(), run.EvaluationsSubject(), func(m *nats.Msg) { reply(run.NATS(), m.Reply, "1/1", data) })()
	_, _, err = evaluation.NewClient(f.attach(), evaluation.ClientOptions{}).Roll(t.Context(), asked)
	require.ErrorIs(t, err, schemas.ErrKind)
}

// Invariant: whatever becomes of tickets and answers, each ticket is accounted for exactly once: scored, failed by a reason, or
// abandoned.
func TestInvariantEachTicketIsAccountedForExactlyOnce(t *testing.T) {
	t.Parallel()
	f := newField(t)
	run := f.attach()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "questions")
		// What becomes of the tickets, one after the other, in the order in which they come.
		fates := rapid.SliceOfN(rapid.SampledFrom([]string{
			"done", "done", "twice", "full", "draining", "unserved", "failed", "refused", "nothing", "silent", "broken", "foreign", "late",
		}), 1, 40).Draw(t, "fates")
		gone := rapid.Bool().Draw(t, "version goes")
		var at atomic.Int64
		stop := answering(t, run.NATS(), run.EvaluationsSubject(), func(m *nats.Msg) {
			i := at.Add(1) - 1
			fate := "done"
			if int(i) < len(fates) {
				fate = fates[i]
			}
			answerAs(run.NATS(), m, fate)
		})
		defer stop()
		options := evaluation.ClientOptions{Silence: shortWait * 5, Kept: func(context.Context, int64) (bool, error) {
			return !gone || int(at.Load()) < len(fates)/2, nil
		}}
		cfg := evalConfig()
		cfg.Attempts = rapid.IntRange(1, 3).Draw(t, "attempts")
		r, err := producers.EvaluateBy(context.Background(), evaluation.NewClient(run, options).Roll, prompts(n), cfg)
		require.NotNil(t, r)
		require.Equal(t, err != nil, r.N == 0, "there is no score only where nothing was scored")
		require.Equal(t, n, r.N+r.Failed+r.Abandoned)
		require.Len(t, r.Samples, n)
		seen, scored, reasons := map[string]bool{}, 0, 0
		for _, s := range r.Samples {
			require.False(t, seen[s.ID], s.ID)
			seen[s.ID] = true
			if s.Error == "" {
				scored++
				require.NotNil(t, s.ExactMatch)
			}
		}
		for _, count := range r.Reasons {
			reasons += count
		}
		require.Equal(t, r.N, scored)
		require.Equal(t, r.Failed, reasons)
		if !gone {
			require.Zero(t, r.Abandoned)
		}
	})
}

func ticket(version int64) *schemas.Ticket {
	return &schemas.Ticket{
		Run: "test", ID: "eval-v7-0-0", Group: "eval-v7-0", GroupSize: 1, Task: "letters", Prompt: prompts(1)[0],
		PolicyVersion: version, MinVersion: version, Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 64},
	}
}

// outcome asks once what becomes of a ticket.
func outcome(t *testing.T, nc *nats.Conn, subject string, asked *schemas.Ticket) schemas.EvaluationOutcome {
	t.Helper()
	data, err := schemas.Marshal(asked)
	require.NoError(t, err)
	to := nc.NewInbox()
	sub, err := nc.SubscribeSync(to)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	require.NoError(t, nc.PublishRequest(subject, to, data))
	for {
		m, err := sub.NextMsg(longWait)
		require.NoError(t, err)
		if string(m.Data) == "alive" || m.Header.Get("Status") != "" {
			if m.Header.Get("Status") != "" {
				return "" // nobody listens yet
			}
			continue
		}
		e := new(schemas.Evaluation)
		require.NoError(t, schemas.Unmarshal(m.Data, e))
		return e.Outcome
	}
}

// answerAs answers a ticket as a producer of some fate does.
func answerAs(nc *nats.Conn, m *nats.Msg, fate string) {
	asked := new(schemas.Ticket)
	if err := schemas.Unmarshal(m.Data, asked); err != nil {
		return
	}
	e := &schemas.Evaluation{Run: "test", Ticket: asked.ID, Producer: "p", Error: "no", Outcome: schemas.EvaluationOutcome(fate)}
	if fate == "silent" || fate == "late" {
		_ = nc.Publish(m.Reply, []byte("alive"))
	}
	switch fate {
	case "silent":
		return
	case "done", "twice", "late", "broken", "foreign":
		trajectory, _, err := producers.Rollout(context.Background(), asked, environments(&agent{}, 7)["letters"])
		if err != nil {
			return
		}
		trajectory.Producer = "p"
		if fate == "foreign" {
			trajectory.ID = "g000000-a0-0"
		}
		data, _ := schemas.Marshal(trajectory)
		e.Outcome, e.Error, e.Trajectory, e.Turns = schemas.EvaluationDone, "", data, []schemas.EvaluationTurn{{Text: "b", Tool: "double"}}
	}
	data, _ := schemas.Marshal(e)
	switch fate {
	case "late": // after the asker has taken the producer for dead
		time.AfterFunc(shortWait*10, func() { reply(nc, m.Reply, "1/1", data) })
	case "broken":
		reply(nc, m.Reply, "2/2", data)
	case "twice":
		reply(nc, m.Reply, "1/1", data)
		reply(nc, m.Reply, "1/1", data)
	default:
		half := len(data) / 2
		reply(nc, m.Reply, "1/2", data[:half])
		reply(nc, m.Reply, "2/2", data[half:])
	}
}

func reply(nc *nats.Conn, to, part string, data []byte) {
	m := nats.NewMsg(to)
	m.Header.Set("Weir-Part", part)
	m.Data = data
	_ = nc.PublishMsg(m) // the connection lives as long as the test
}

// answering answers what comes to a subject, until the returned function is called.
func answering(t require.TestingT, nc *nats.Conn, subject string, answer func(*nats.Msg)) (stop func()) {
	sub, err := nc.QueueSubscribe(subject, "producers", answer)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return func() {
		_ = sub.Unsubscribe()
		_ = nc.Flush()
	}
}

// fullTool is a tool for whose sessions nobody has room.
type fullTool struct{ double }

func (fullTool) Open(context.Context, producers.Session) error {
	return fmt.Errorf("%w: the episode's time limit", producers.ErrNoRoom)
}

func (fullTool) Close(context.Context, string) error { return nil }

// Finding 13.2: an evaluation for whose session no tool worker had room counted as failed.
func TestAnEvaluationForWhoseSessionNobodyHasRoomWaits(t *testing.T) {
	t.Parallel()
	f := newField(t)
	run := f.attach()
	envs := environments(&agent{}, 7)
	full := envs["letters"]
	full.Tools = []producers.Tool{fullTool{}}
	envs["letters"] = full
	f.produce("p1", 8, envs)
	require.Equal(t, schemas.EvaluationUnserved, outcome(t, run.NATS(), run.EvaluationsSubject(), ticket(7)))
}
