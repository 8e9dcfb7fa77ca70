package assembly

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/schemas"
)

// BranchRequest asks for continuations of a stored episode after some of its turns.
type BranchRequest struct {
	producers.Continuations
	Task *Task
	// Turns are the states: each the number of turns that are given.
	Turns []int
	// Result is returned by the call number Call, from 1, of the last given turn, in place of its tool; nil leaves that to the tool.
	Result *string
	Call   int
	// CallAgain has tools called again that do not say that their calls change nothing outside the episode.
	CallAgain bool
	// Verify first continues the episode with its own random numbers.
	Verify bool
}

// Branches are the continuations of an episode.
type Branches struct {
	States []*producers.State
	// Again is the episode once more; nil where none was asked for.
	Again *schemas.Trajectory
}

// Branch continues a stored episode by this policy.
func (m *LoadedPolicy) Branch(ctx context.Context, r *BranchRequest) (*Branches, error) {
	env, _ := m.Course.askedEnvironment(r.Task, m.Sampler, Question{})
	if err := r.checkContinuable(env.Tools); err != nil {
		return nil, err
	}
	roll := func(ctx context.Context, t *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		return producers.Rollout(ctx, t, env)
	}
	out, err := &Branches{}, error(nil)
	if r.Verify {
		if out.Again, err = r.Again(ctx, roll, slices.Min(r.Turns)); err != nil {
			return nil, err
		}
	}
	if r.Result != nil {
		index := r.Call - 1
		for i := range r.Was.Turns[:r.Turns[0]-1] {
			index += len(r.Was.Turns[i].Calls)
		}
		env.Results, r.OtherResult = map[int]string{index: *r.Result}, true
	}
	for _, turns := range r.Turns {
		state, err := r.From(ctx, roll, turns)
		if err != nil {
			return nil, err
		}
		out.States = append(out.States, state)
	}
	return out, nil
}

// CheckContinuable is nil where the agent of a stored episode, as it is configured, does not come by itself. It opens nothing, so that
// neither the agent's key nor its address is needed.
func (s *Run) CheckContinuable(was *schemas.Trajectory) error {
	task := s.Config.Tasks[was.Task]
	if task == nil || s.Config.Agents[task.Agent] == nil || !comesByItself(s.Config.Agents[task.Agent].Own) {
		return nil
	}
	return awaitedError(was)
}

// comesByItself reports whether an agent, or its configuration, is of an agent that comes for episodes.
func comesByItself(agent any) bool {
	awaited, ok := agent.(agents.Awaited)
	return ok && awaited.Awaited()
}

func awaitedError(was *schemas.Trajectory) error {
	return fmt.Errorf("trajectory %s: its agent comes for episodes by itself, and comes for no command: it cannot be continued", was.ID)
}

// checkContinuable is nil where the episode can be continued: its agent does not come by itself, and its tools may be called again.
func (r *BranchRequest) checkContinuable(tools []producers.Tool) error {
	if comesByItself(r.Task.agent) {
		return awaitedError(r.Was)
	}
	unsure := producers.UnrepeatableTools(tools, r.Was, slices.Max(r.Turns))
	if len(unsure) > 0 && !r.CallAgain {
		return fault.Usagef("trajectory %s called tool %s, which does not say that its calls change nothing outside the episode: "+
			"each continuation calls it again; --call-again allows that", r.Was.ID, strings.Join(unsure, ", "))
	}
	return nil
}
