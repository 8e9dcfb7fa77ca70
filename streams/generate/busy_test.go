package generate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// full serves no call until it was asked so often.
func full(asks int, then Handler) Handler {
	return func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		if asks--; asks >= 0 {
			return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: "full", Retry: true, Busy: true})
		}
		return then(ctx, req, emit)
	}
}

// Defect P15: an engine that was full counted as one that failed, so that a few seconds of saturation failed every call.
func TestAFullEngineIsWaitedFor(t *testing.T) {
	f := newFixture(t, true)
	f.serving(t, "engine", full(7, sampler(1, nil)))
	g := NewClient(f.run, ClientOptions{Retries: 1})
	defer g.Close()
	req := &schemas.GenerateRequest{Run: f.run.Name(), Episode: "e", Tokens: schemas.Int32s{1, 2}, MaxTokens: 3, Temperature: 1}
	out, err := g.Generate(f.ctx, req)
	require.NoError(t, err)
	require.Equal(t, sampled(req, 3), out.Tokens)
}

// One that stays full is waited for until the context ends; one that fails is still given up.
func TestWaitingForAFullEngineEndsWithTheContext(t *testing.T) {
	f := newFixture(t, true)
	ctx, cancel := context.WithCancelCause(f.ctx)
	enough, asks := errors.New("enough"), 0
	f.serving(t, "engine", func(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		if asks++; asks == 6 {
			cancel(enough)
		}
		return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: "full", Retry: true, Busy: true})
	})
	g := NewClient(f.run, ClientOptions{Retries: 1})
	defer g.Close()
	req := &schemas.GenerateRequest{Run: f.run.Name(), Episode: "e", Tokens: schemas.Int32s{1, 2}, MaxTokens: 3, Temperature: 1}
	_, err := g.Generate(ctx, req)
	require.ErrorIs(t, err, enough)
	require.NotErrorIs(t, err, ErrFailed)
}

// Defect F9: a producer that was told to stop waited out its grace for engines that were gone. Calls that an engine serves go on.
func TestACallThatNobodyServesEndsWhenItsCallerStops(t *testing.T) {
	f := newFixture(t, true)
	ending, served := make(chan struct{}), make(chan struct{})
	g := NewClient(f.run, ClientOptions{Ending: ending})
	defer g.Close()
	req := &schemas.GenerateRequest{Run: f.run.Name(), Episode: "e", Tokens: schemas.Int32s{1, 2}, MaxTokens: 3, Temperature: 1}
	waits := make(chan error, 1)
	go func() {
		_, err := g.Generate(f.ctx, req)
		waits <- err
	}()
	close(ending)
	require.ErrorIs(t, <-waits, ErrUnserved)

	ending = make(chan struct{})
	g = NewClient(f.run, ClientOptions{Ending: ending})
	defer g.Close()
	f.serving(t, "engine", sampler(1, func(i int) error {
		if i == 1 {
			close(ending)
			<-served
		}
		return nil
	}))
	go func() {
		<-ending
		close(served)
	}()
	out, err := g.Generate(f.ctx, req)
	require.NoError(t, err)
	require.Equal(t, sampled(req, 3), out.Tokens)
}
