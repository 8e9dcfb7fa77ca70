package producers_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// placed is a session tool whose episodes take a place among a few with their first call, until Close.
type placed struct {
	kept
	places chan struct{}
	taking sync.Mutex
	has    map[string]bool
}

func (p *placed) Effects() producers.Effects { return producers.EffectsSession }
func (p *placed) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	p.taking.Lock()
	has := p.has[c.Episode]
	p.taking.Unlock()
	if !has {
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return producers.Observation{}, context.Cause(ctx)
		}
		p.taking.Lock()
		p.has[c.Episode] = true
		p.taking.Unlock()
	}
	return producers.Observation{Text: "hmm"}, nil
}

func (p *placed) Close(ctx context.Context, episode string) error {
	p.taking.Lock()
	defer p.taking.Unlock()
	if p.has[episode] {
		delete(p.has, episode)
		<-p.places
	}
	return nil
}

// Finding R3 of a review: an episode kept its place while the episodes that go on from its states waited for places.
func TestAnEpisodeGivesItsPlaceToTheEpisodesThatValueItsStates(t *testing.T) {
	cfg := config()
	cfg.Values.Samples = 1
	env := newEnvironment(t, policyFunc(one))
	env.Tools = []producers.Tool{&placed{kept: kept{name: "search"}, places: make(chan struct{}, 1), has: map[string]bool{}}}
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if err := e.Begin([]int32{1}); err != nil {
			return err
		}
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
			return err
		}
		if _, err := e.Call(ctx, "search", "x"); err != nil {
			return err
		}
		e.Finish("x", "answer")
		return nil
	})
	s := newStream(newTicket(0))
	p := start(t, cfg, s, env)
	<-s.idle
	p.stop()
	require.Len(t, s.published, 1)
	require.NotEmpty(t, s.published[0].Values)
}
