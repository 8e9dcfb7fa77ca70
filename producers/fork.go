package producers

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// fork gives an episode the turns of the episode that its ticket forks, in place of calls to the policy. Agents and tools know nothing of
// it: an agent asks as ever, and its tools are called anew, so that sessions, files and kernels are as they were.
//
// A turn is given only where the policy would be shown, token for token, the same context as then: so a token that is given was sampled
// from the very distribution that its log-probability is of. Where something else is shown, because a tool answered otherwise or the agent
// is another agent, the episode has diverged: from there on the policy samples.
type fork struct {
	from *schemas.Fork
	// next is how many turns were given, diverged why no further turn is given; "" as long as a turn may be.
	next     int
	diverged string
}

// newFork is nil where the ticket asks for no fork.
func newFork(from *schemas.Fork) *fork {
	if from == nil {
		return nil
	}
	return &fork{from: from}
}

// takeReplayedTurn returns the turn that comes next where it answers the request, else nil: the policy is asked. The episode's lock is
// held.
func (f *fork) takeReplayedTurn(r *schemas.GenerateRequest, agent string, more bool) *generate.Result {
	if f == nil || more || f.diverged != "" || f.next == len(f.from.Turns) {
		return nil
	}
	turn := f.from.Turns[f.next]
	s := &f.from.Segments[turn.Segment]
	if f.diverged = f.describeDifference(r, agent, s, turn); f.diverged != "" {
		return nil
	}
	f.next++
	out := &generate.Result{
		Tokens: slices.Clone([]int32(s.Tokens[turn.Start:turn.End])), Logprobs: slices.Clone([]float32(s.Logprobs[turn.Start:turn.End])),
		Versions: slices.Clone([]int32(s.Versions[turn.Start:turn.End])), Stop: schemas.GenerateLength, Engine: "fork of " + f.from.Parent,
	}
	if slices.Contains(r.StopTokens, out.Tokens[len(out.Tokens)-1]) {
		out.Stop = schemas.GenerateStopToken
	}
	return out
}

// describeDifference returns why a turn does not answer a request; "" where it does.
func (f *fork) describeDifference(r *schemas.GenerateRequest, agent string, s *schemas.Segment, turn schemas.Turn) string {
	shown := s.Tokens[:turn.Start]
	switch {
	case agent != s.Agent:
		return fmt.Sprintf("turn %d: agent %q acts, and %q did", f.next, agent, s.Agent)
	case r.Temperature != s.Temperature:
		return fmt.Sprintf("turn %d: temperature is %g, and was %g", f.next, r.Temperature, s.Temperature)
	case turn.End-turn.Start > r.MaxTokens:
		return fmt.Sprintf("turn %d: has %d tokens, and there is room for %d", f.next, turn.End-turn.Start, r.MaxTokens)
	case !slices.Equal(r.Tokens, shown):
		at := 0
		for at < min(len(r.Tokens), len(shown)) && r.Tokens[at] == shown[at] {
			at++
		}
		return fmt.Sprintf("turn %d: the policy is shown %d tokens and was shown %d, the first %d of them the same", f.next, len(r.Tokens), len(shown), at)
	}
	return ""
}

// describeFork returns the trajectory's record of the fork; nil where the ticket asked for no fork.
func (f *fork) describeFork() *schemas.Forked {
	if f == nil {
		return nil
	}
	out := &schemas.Forked{Parent: f.from.Parent, Turns: f.next, Diverged: f.diverged}
	if out.Diverged == "" && f.next < len(f.from.Turns) {
		out.Diverged = fmt.Sprintf("turn %d: the episode ended before it", f.next)
	}
	return out
}

// drawingSeed returns the seed that agent and tools draw from: the parent's in a fork, so that they do the same as then.
func (e *Episode) drawingSeed() uint64 {
	if e.fork != nil {
		return e.fork.from.Seed
	}
	return e.ticket.Seed
}
