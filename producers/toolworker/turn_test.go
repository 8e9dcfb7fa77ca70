package toolworker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/schemas"
)

// counting is an agent that makes a single call of the tool count.
type counting struct{}

func (counting) Run(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin([]int32{0}); err != nil {
		return err
	}
	if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
		return err
	}
	if _, err := e.Call(ctx, "count", "x"); err != nil {
		return err
	}
	e.Finish("x", schemas.StopAnswer)
	return nil
}

// Finding 16a.5: a call at a tool worker waited for its turn, by toolworker.calls, toolworker.queue or max_concurrent, in its episode's
// time, and by max_concurrent in its own: what only waited was cut off, and trained on.
func TestTheWaitOfACallAtAWorkerForItsTurnIsNoPartOfItsTime(t *testing.T) {
	t.Parallel()
	const works, limit = 700 * time.Millisecond, 1900 * time.Millisecond
	for name, c := range map[string]struct {
		change        func(*toolworker.Config)
		maxConcurrent int
	}{
		"toolworker.calls": {func(cfg *toolworker.Config) { cfg.Calls = 1 }, 0},
		"toolworker.queue": {func(cfg *toolworker.Config) { cfg.Calls, cfg.Queue = 1, 1 }, 0},
		"max_concurrent":   {func(*toolworker.Config) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			served := &counter{}
			served.call = func(ctx context.Context, call producers.Call) (producers.Observation, error) {
				select {
				case <-time.After(works):
				case <-ctx.Done():
					return producers.Observation{}, context.Cause(ctx)
				}
				return served.add(call)
			}
			cfg := tools.DefaultGuardConfig()
			cfg.MaxConcurrent = c.maxConcurrent
			guard, err := tools.NewGuard(cfg)
			require.NoError(t, err)
			guarded, err := guard.Wrap(served)
			require.NoError(t, err)
			f.worker("a", c.change, tools.Within(guarded, limit))
			tool := f.caller(toolworker.ClientOptions{}, served)[0]
			const episodes = 4
			stops := make(chan string, episodes)
			for i := range episodes {
				go func() {
					ticket := &schemas.Ticket{
						Run: "test", ID: fmt.Sprint("e", i), Group: "g", GroupSize: episodes, Task: "task",
						Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96, Timeout: limit},
					}
					env := producers.Environment{Policy: workspacetest.Word{}, Tokenizer: workspacetest.Word{}, Reward: workspacetest.Word{}, Tools: []producers.Tool{tool}, Agent: counting{}}
					got, _, err := producers.Rollout(t.Context(), ticket, env)
					for errors.Is(err, producers.ErrNoRoom) { // its session found none, and its ticket went back
						got, _, err = producers.Rollout(t.Context(), ticket, env)
					}
					if err != nil {
						stops <- err.Error()
						return
					}
					stops <- string(got.Stop)
				}()
			}
			for range episodes {
				require.Equal(t, string(schemas.StopAnswer), <-stops)
			}
		})
	}
}

// An episode whose opening waits for its turn at a worker until its time is over found no room: no worker had begun to open it (15a.4's
// neighbour, 16a.5).
func TestAnOpeningThatWaitsForItsTurnFoundNoRoom(t *testing.T) {
	t.Parallel()
	f := newField(t)
	release, over := make(chan struct{}), errors.New("its time is over")
	served := &counter{call: func(context.Context, producers.Call) (producers.Observation, error) {
		<-release
		return producers.Observation{}, nil
	}}
	f.worker("a", func(cfg *toolworker.Config) { cfg.Calls = 1 }, served)
	tool := f.caller(toolworker.ClientOptions{Again: 10 * time.Second}, served)[0]
	open(t, tool, "e1")
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	said := 0
	nc := f.attach().NATS()
	heard, err := nc.Subscribe(">", func(m *nats.Msg) {
		r := new(schemas.ToolReply)
		if schemas.Unmarshal(m.Data, r) == nil && r.Session == "e2" && !r.Done && m.Header.Get("Weir-Waits") == "1" {
			if said++; said == 2 { // the caller has heard the first
				end(over)
			}
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	called := make(chan string, 1)
	go func() { called <- call(t, tool, "e1") }()
	eventually(t, "the call is worked on", func() bool { return served.called() == 1 })
	err = tool.(producers.SessionTool).Open(ctx, told("e2"))
	close(release)
	<-called
	require.ErrorIs(t, err, over)
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.NoError(t, heard.Unsubscribe())
}
