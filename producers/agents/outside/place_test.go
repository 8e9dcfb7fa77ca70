package outside

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// placedAgent is an agent whose program works for a while on its place.
type placedAgent struct {
	agent
	works time.Duration
	leave func()
}

func (p *placedAgent) Run(ctx context.Context, e *producers.Episode) error {
	if _, err := p.awaitPlace(ctx, e); err != nil {
		return err
	}
	defer p.leave()
	if err := e.Begin([]int32{1}); err != nil {
		return err
	}
	if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
		return err
	}
	select {
	case <-time.After(p.works):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	e.Finish("x", schemas.StopAnswer)
	return nil
}

// Finding 13.6: a program waited for its sandbox in its episode's time: what was left of it was cut off, and trained on.
func TestTheTimeOfAnEpisodeBeginsWhenItsProgramHasAPlace(t *testing.T) {
	t.Parallel()
	const limit = time.Minute // of rollOut
	for name, c := range map[string]struct {
		works time.Duration
		want  schemas.StopReason
		takes time.Duration
	}{
		"each in its time": {limit * 7 / 10, schemas.StopAnswer, 3 * limit * 7 / 10},
		"none in its time": {2 * limit, schemas.StopTimeout, 3 * limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places := make(chan struct{}, 1)
				places <- struct{}{}
				a := &placedAgent{agent{takePlace: func(ctx context.Context) (agentPlace, error) {
					select {
					case <-places:
						return nil, nil
					case <-ctx.Done():
						return nil, fmt.Errorf("%w: %w", producers.ErrNoRoom, context.Cause(ctx))
					}
				}}, c.works, func() { places <- struct{}{} }}
				began, ended := time.Now(), make(chan error, 3)
				for range 3 {
					go func() {
						got, err := rollOut(t, a, scoreFunc(func() float64 { return 1 }), &blocking{}) //nolint:testifylint // it asserts that a tokenizer is made
						if err == nil && got.Stop != c.want {
							err = errors.New(string(got.Stop))
						}
						ended <- err
					}()
				}
				for range 3 {
					require.NoError(t, <-ended)
				}
				require.Equal(t, c.takes, time.Since(began))
			})
		})
	}
}

// Finding 13.6: a ticket whose program nobody had room for failed.
func TestAnEpisodeForWhoseProgramNobodyHasRoomHasNotFailed(t *testing.T) {
	t.Parallel()
	broken := errors.New("no keeper")
	for _, c := range []struct {
		fails    error
		notBegun bool
	}{{fmt.Errorf("%w: all 64 are in use", producers.ErrNoRoom), true}, {broken, false}} {
		a := &placedAgent{agent: agent{takePlace: func(context.Context) (agentPlace, error) { return nil, c.fails }}}
		_, err := rollOut(t, a, scoreFunc(func() float64 { return 1 }), &blocking{})
		require.ErrorIs(t, err, c.fails)
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.Equal(t, c.notBegun, errors.Is(err, producers.ErrNotBegun))
	}
}
