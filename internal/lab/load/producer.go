package load

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// times are the times of all producers, by the work of an episode's slot.
type times struct{ lease, generate, tool, publish, done, episode tally }

func (t *times) allTallies() []*tally {
	return []*tally{&t.lease, &t.generate, &t.tool, &t.publish, &t.done, &t.episode}
}

// producer leases tickets, plays their episodes by the clock and publishes trajectories, as many at once as it has slots.
type producer struct {
	config   Config
	name     string
	run      *streams.Run
	calls    *generate.Client
	template *schemas.Trajectory
	times    *times
}

func newProducer(c Config, n int, run *streams.Run, t *times) *producer {
	p := &producer{config: c, name: fmt.Sprintf("p%d", n), run: run, times: t, template: harness.Trajectory(run.Name(), 1000+harness.WireToken*c.Tokens)}
	p.template.Producer = p.name
	p.calls = generate.NewClient(run, generate.ClientOptions{Silence: time.Minute})
	return p
}

func (p *producer) runEpisodes(ctx context.Context) error {
	defer p.calls.Close()
	source, err := p.run.Tickets(ctx, streams.TicketOptions{Producer: p.name, MaxLeases: p.config.Slots})
	if err != nil {
		return err
	}
	defer source.Close()
	slots, working := errgroup.WithContext(ctx)
	for range p.config.Slots {
		slots.Go(func() error {
			for working.Err() == nil {
				if err := p.runEpisode(working, source); err != nil && working.Err() == nil {
					return fmt.Errorf("producer %s: %w", p.name, err)
				}
			}
			return nil
		})
	}
	return slots.Wait()
}

func (p *producer) runEpisode(ctx context.Context, source *streams.TicketSource) error {
	begin := time.Now()
	at := begin
	lap := func(t *tally) {
		now := time.Now()
		t.addTime(now.Sub(at))
		at = now
	}
	lease, err := source.Take(ctx)
	if err != nil {
		return err
	}
	lap(&p.times.lease)
	for turn := range p.config.Turns {
		if err := p.sampleTurn(ctx, lease.Ticket.ID, turn); err != nil {
			return err
		}
		lap(&p.times.generate)
		if err := harness.Wait(ctx, p.config.Tool); err != nil {
			return err
		}
		lap(&p.times.tool)
	}
	t, ticket := *p.template, lease.Ticket
	t.ID, t.Group, t.Cursor, t.Sample, t.GroupSize = ticket.ID, ticket.Group, ticket.Cursor, ticket.Sample, ticket.GroupSize
	t.StartedAt, t.FinishedAt = begin.UTC(), time.Now().UTC()
	if err := p.run.Publish(ctx, &t); err != nil {
		return err
	}
	lap(&p.times.publish)
	if err := lease.Done(ctx); err != nil {
		return err
	}
	lap(&p.times.done)
	p.times.episode.addTime(at.Sub(begin))
	return nil
}

// sampleTurn asks an engine for the tokens of a turn, with the whole context so far, or waits as long as they take where there is none.
func (p *producer) sampleTurn(ctx context.Context, episode string, turn int) error {
	c := p.config
	if c.Engines == 0 {
		return harness.Wait(ctx, time.Duration(c.TurnTokens)*c.Token)
	}
	tokens := p.template.Segments[0].Tokens
	_, err := p.calls.Generate(ctx, &schemas.GenerateRequest{
		Episode: episode, Tokens: tokens[:(turn+1)*len(tokens)/(c.Turns+1)], MaxTokens: c.TurnTokens, Temperature: 1, Last: turn == c.Turns-1,
	})
	return err
}
