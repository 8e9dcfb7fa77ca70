package producers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// serveAsAnotherVersion answers the run's generate calls as an engine of another wire version: it cannot read them and refuses them for
// good, as [generate.Serve] does. It leaves, for an upgrade, with the first refusal.
func serveAsAnotherVersion(t *testing.T, run *streams.Run) (refused <-chan struct{}) {
	t.Helper()
	upgraded := make(chan struct{}, 1)
	sub, err := run.NATS().QueueSubscribe(run.GenerateSubject(), "engines", func(m *nats.Msg) {
		chunk := &schemas.GenerateChunk{
			Engine: "old", Episode: "?", Done: true, Stop: schemas.GenerateError,
			Error: fmt.Sprintf("wire version %d, this build reads %d", schemas.Version, schemas.Version-1),
		}
		data, err := schemas.Marshal(chunk)
		if err = errors.Join(err, m.Sub.Unsubscribe()); err == nil {
			err = m.Respond(data)
		}
		upgraded <- struct{}{}
		if err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // it may be gone already
	require.NoError(t, run.NATS().Flush())
	return upgraded
}

// An episode meets an engine of another wire version, which cannot read its call: the call fails, and the ticket goes back. When the engine is upgraded the ticket is done, and its trajectory stored once.
func TestACallThatAnOlderEngineCannotReadSendsTheTicketBack(t *testing.T) {
	o := newOutage(t)
	refused := serveAsAnotherVersion(t, o.run)
	client := generate.NewClient(o.run, generate.ClientOptions{})
	defer client.Close()
	served := make(chan producers.Served, 100)
	cfg := config()
	cfg.MaxDeliver, cfg.RetryDelay = 3, 10*time.Millisecond
	source, err := o.run.Tickets(context.Background(), streams.TicketOptions{Producer: cfg.Name, MaxLeases: cfg.Concurrency})
	require.NoError(t, err)
	defer source.Close()
	env := newEnvironment(t, client)
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		for _, agent := range []string{"first", "second"} {
			c, err := e.Open(agent, []int32{1})
			if err != nil {
				return err
			}
			if _, _, err := c.Generate(ctx, producers.GenerateOptions{Stop: []int32{7}}); err != nil {
				return err
			}
		}
		e.Finish("x", schemas.StopAnswer)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- producers.Run(ctx, cfg, producers.Deps{
			Stream: producers.OnRun(o.run, source), Environments: map[string]producers.Environment{"echo": env},
			Served: func(s producers.Served) { served <- s },
		})
	}()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()

	ids := o.issue(0)
	first := <-served
	require.ErrorIs(t, first.Err, generate.ErrFailed)
	require.ErrorContains(t, first.Err, "wire version 3, this build reads 2")
	<-refused

	serving, stop := context.WithCancel(t.Context())
	engine := make(chan error, 1)
	go func() {
		engine <- generate.Serve(serving, o.run, "new", func(_ context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateStopToken, Tokens: []int32{7}, Logprobs: []float32{-1}, Versions: []int32{3}})
		})
	}()
	defer func() {
		stop()
		require.NoError(t, <-engine)
	}()
	require.Equal(t, map[string]int{ids[0]: 1}, o.stored(ids))
	second := <-served
	require.NoError(t, second.Err)
	require.Equal(t, 2, second.Delivery, "the same ticket, which went back")
	require.Equal(t, first.Ticket.ID, second.Ticket.ID)
}
