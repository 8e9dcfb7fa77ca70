package producers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
)

// Continuations runs an episode on from its own turns, several times from each: the mean of the returns is the value of the state after
// these turns. Turns are given from the episode's trajectory, token for token, and their calls of tools are made again; then the policy
// samples, with random numbers of its own in each continuation.
//
// Invariant: a continuation that is counted was shown the same tokens after the turns as the episode was.
type Continuations struct {
	// Was is the episode, and Ticket is its ticket.
	Was    *schemas.Trajectory
	Ticket schemas.Ticket
	// ToolSeed is the seed that agent and tools drew from: the ticket's, or the parent's where the episode was a fork.
	ToolSeed uint64
	// Name begins the ids of the continuations.
	Name string
	// Samples is how many continuations a state has, >= 1; Seed fixes their random numbers. Concurrency is how many run at once, >= 1.
	Samples     int
	Seed        uint64
	Concurrency int
	// OtherResult is whether a call of the last given turn returns something else than it did, so that the tokens after it may differ.
	OtherResult bool
}

// State is the state of an episode after its first turns, with its continuations.
type State struct {
	// Turns counts the turns that are given.
	Turns int
	// Episodes are the continuations, whole.
	Episodes []*schemas.Trajectory
}

// DifferentStateError is returned for a continuation that did not come to the state that it was to go on from.
type DifferentStateError struct {
	// Episode is the episode that goes on, Turns counts the turns that were to be given.
	Episode string
	Turns   int
	// Tools are the names of the tools that were called in these turns, each once.
	Tools []string
	// Why is the difference.
	Why string
}

// Error names the episode, the turns, the tools and a way out.
func (e *DifferentStateError) Error() string {
	called := "no tool was called before"
	if len(e.Tools) > 0 {
		called = "tools called before: " + strings.Join(e.Tools, ", ") + ", of which one answers otherwise than it did"
	}
	return fmt.Sprintf("trajectory %s does not come to the same state again after %d of its turns: %s; %s: go on from an earlier turn",
		e.Episode, e.Turns, e.Why, called)
}

// From continues the episode after its first turns, 0 <= turns <= len(Was.Turns); after 0 it begins with the prompt. The order of the
// result is that of the samples. The error is a [DifferentStateError] where a continuation does not come to the state; other errors are of
// roll.
func (c *Continuations) From(ctx context.Context, roll Roll, turns int) (*State, error) {
	if turns < 0 || turns > len(c.Was.Turns) {
		return nil, fmt.Errorf("trajectory %s has %d turns: it cannot go on after %d", c.Was.ID, len(c.Was.Turns), turns)
	}
	state := &State{Turns: turns, Episodes: make([]*schemas.Trajectory, c.Samples)}
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(c.Concurrency)
	for i := range c.Samples {
		if running.Err() != nil {
			break
		}
		group.Go(func() error {
			ticket := c.sampleTicket(turns, i)
			went, _, err := roll(running, ticket)
			switch {
			case errors.Is(err, errNothingSampled):
				return fmt.Errorf("trajectory %s: its limits leave no room to go on after %d of its turns: %w", c.Was.ID, turns, err)
			case err != nil:
				return fmt.Errorf("continue trajectory %s after %d of its turns: %w", c.Was.ID, turns, err)
			}
			state.Episodes[i] = went
			return c.checkState(went, turns)
		})
	}
	if err := errors.Join(group.Wait(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	return state, nil
}

// Again continues the episode with its own random numbers: with the version that sampled it and the same answers of tools it is the episode
// once more, token for token.
func (c *Continuations) Again(ctx context.Context, roll Roll, turns int) (*schemas.Trajectory, error) {
	if f := c.Was.Forked; f != nil {
		turns = max(turns, f.Turns) // the turns given to it were not sampled with its own numbers
	}
	ticket := c.sampleTicket(turns, 0)
	ticket.Seed = c.Ticket.Seed
	went, _, err := roll(ctx, ticket)
	return went, err
}

// sampleTicket is the ticket of a continuation.
func (c *Continuations) sampleTicket(turns, sample int) *schemas.Ticket {
	t := c.Ticket
	t.Group, t.Sample, t.GroupSize = fmt.Sprintf("%s-%d", c.Name, turns), sample, c.Samples
	t.ID = fmt.Sprintf("%s-%d", t.Group, sample)
	t.Seed = schemas.MixSeed(c.Seed + uint64(turns)<<32 + uint64(sample))
	t.Fork = &schemas.Fork{Parent: c.Was.ID, Seed: c.ToolSeed} // of no turn: agent and tools draw as they did
	if turns > 0 {
		t.Fork = schemas.ForkAt(c.Was, turns, c.ToolSeed)
	}
	return &t
}

// checkState is nil where a continuation went on from the state after the first turns.
func (c *Continuations) checkState(went *schemas.Trajectory, turns int) error {
	why := ""
	switch f := went.Forked; {
	case f != nil && f.Diverged != "":
		why = f.Diverged
	case turns >= len(c.Was.Turns) || c.OtherResult:
	case len(went.Turns) <= turns:
		why = fmt.Sprintf("turn %d: the episode ended before it", turns)
	default:
		was, now := c.Was.Turns[turns], went.Turns[turns]
		if was.Segment != now.Segment || was.Start != now.Start ||
			!slices.Equal(c.Was.Segments[was.Segment].Tokens[:was.Start], went.Segments[now.Segment].Tokens[:now.Start]) {
			why = fmt.Sprintf("turn %d: the policy is shown other tokens than it was", turns)
		}
	}
	if why == "" {
		return nil
	}
	return &DifferentStateError{Episode: c.Was.ID, Turns: turns, Tools: CalledTools(c.Was, turns), Why: why}
}

// CalledTools are the names of the tools that an episode called in its first turns, each once, in the order of their first calls.
func CalledTools(t *schemas.Trajectory, turns int) []string {
	var names []string
	for i := range t.Turns[:turns] {
		for _, call := range t.Turns[i].Calls {
			if !slices.Contains(names, call.Tool) {
				names = append(names, call.Tool)
			}
		}
	}
	return names
}

// ReturnAfter is the return of an episode after its first turns: its outcome, and the rewards of the turns that followed.
func ReturnAfter(t *schemas.Trajectory, turns int) float64 {
	sum := t.Reward
	for i := turns; i < len(t.Turns); i++ {
		sum += t.Turns[i].Credit()
	}
	return sum
}

// Value is the mean return of the continuations, and its standard error; the error is NaN of a single continuation.
func (s *State) Value() (mean, standardError float64) {
	n := float64(len(s.Episodes))
	for _, t := range s.Episodes {
		mean += ReturnAfter(t, s.Turns)
	}
	mean /= n
	if n < 2 {
		return mean, math.NaN()
	}
	squares := 0.0
	for _, t := range s.Episodes {
		squares += (ReturnAfter(t, s.Turns) - mean) * (ReturnAfter(t, s.Turns) - mean)
	}
	return mean, math.Sqrt(squares / (n - 1) / n)
}

// Sampled counts the tokens that were sampled for the state, without the tokens of the given turns.
func (s *State) Sampled() int {
	n := 0
	for _, t := range s.Episodes {
		n += SampledAfter(t, s.Turns)
	}
	return n
}

// SampledAfter counts the tokens that the policy sampled after an episode's first turns.
func SampledAfter(t *schemas.Trajectory, turns int) int {
	n := t.ActionTokens()
	for _, turn := range t.Turns[:min(turns, len(t.Turns))] {
		n -= turn.End - turn.Start
	}
	return n
}

// Took is the sum of the continuations' times.
func (s *State) Took() time.Duration {
	sum := time.Duration(0)
	for _, t := range s.Episodes {
		sum += t.FinishedAt.Sub(t.StartedAt)
	}
	return sum
}

// TurnAdvantage is the advantage of a turn whose reward is credit, by the values of the states before and after it: A = r + V(s') - V(s)
// (VinePPO, arXiv 2410.01679, with a discount of 1). After the last turn, V(s') is the outcome.
func TurnAdvantage(credit, before, after float64) float64 { return credit + after - before }
