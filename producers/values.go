package producers

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// ValuesConfig says whether a producer estimates the values of the states of its episodes.
type ValuesConfig struct {
	// Samples is how many episodes go on from the state before each turn of an episode, at the same time, before the trajectory is
	// published: their mean return is the value of the state, which vineppo compares turns by. They cost about samples * (turns + 1) / 2
	// times the tokens of the episode. 0 estimates nothing.
	Samples int `koanf:"samples" min:"0"`
}

// Validate reports every fault.
func (c ValuesConfig) Validate() error { return check.NotNegative("samples", c.Samples) }

// estimateValues estimates the values of the states that the turns of an episode began in. Greedy rollouts have none. A state that no other
// episode comes to has no value: the episode is trained on all the same, else a policy could take an episode out of training by a call
// that nobody can repeat.
func (w *worker) estimateValues(ctx context.Context, e *Episode, t *schemas.Trajectory) error {
	if w.cfg.Values.Samples == 0 || t.Greedy() {
		return nil
	}
	defer e.activity.beginCall("values", "")()
	env := e.env
	env.Watch = nil
	roll := func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *Transcript, error) {
		return Rollout(ctx, ticket, env)
	}
	c := &Continuations{
		Was: t, Ticket: *e.ticket, ToolSeed: e.drawingSeed(), Name: t.ID + "-v", Samples: w.cfg.Values.Samples, Seed: e.ticket.Seed,
		Concurrency: w.cfg.Values.Samples,
	}
	values := make([]schemas.StateValue, len(t.Turns))
	for turns := range values {
		if !isRepeatable(env.Tools, t, turns) {
			w.metrics.countUnvalued(len(values) - turns)
			break
		}
		state, err := c.From(ctx, roll, turns)
		switch {
		case err == nil:
			mean, _ := state.Value()
			values[turns] = schemas.StateValue{Mean: mean, Samples: len(state.Episodes), Tokens: state.Sampled()}
			w.metrics.countValueTokens(values[turns].Tokens)
		case ctx.Err() != nil, errors.Is(err, ErrUnavailable), Unserved(err):
			return err
		default:
			w.metrics.countUnvalued(1)
		}
	}
	t.Values = values
	return nil
}

// isRepeatable reports whether other episodes may come to the state after an episode's first turns: they keep the order of the moves of a
// single agent, and call again only tools that say that they may be called again.
func isRepeatable(tools []Tool, t *schemas.Trajectory, turns int) bool {
	several := slices.ContainsFunc(t.Segments, func(s schemas.Segment) bool { return s.Agent != t.Segments[0].Agent })
	return turns == 0 || !several && len(UnrepeatableTools(tools, t, turns)) == 0
}

// UnrepeatableTools are the names of the tools that an episode called in its first turns and that do not say that they may be called again:
// a call may change something outside the episode, or a session that nobody can bring back.
func UnrepeatableTools(tools []Tool, t *schemas.Trajectory, turns int) []string {
	var names []string
	for _, name := range CalledTools(t, turns) {
		at := slices.IndexFunc(tools, func(tool Tool) bool { return tool.Spec().Name == name })
		if at < 0 {
			continue // the agent's own, or no tool at all
		}
		if EffectsOf(tools[at]).isFenced() {
			names = append(names, name)
		}
	}
	return names
}
