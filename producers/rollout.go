package producers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Environment is what an episode runs in. All of it is used by many episodes at once.
type Environment struct {
	Policy    Policy
	Tokenizer Tokenizer
	Agent     Agent
	// Tools that the agent may call, by distinct names; nil is none.
	Tools  []Tool
	Reward Reward
	// metrics are the producer's; nil counts nothing.
	metrics *Metrics
}

func (env Environment) validate() error {
	var faults []error
	for _, need := range []struct {
		name   string
		absent bool
	}{{"Policy", env.Policy == nil}, {"Tokenizer", env.Tokenizer == nil}, {"Agent", env.Agent == nil}, {"Reward", env.Reward == nil}} {
		if need.absent {
			faults = append(faults, fmt.Errorf("environment: %s is nil", need.name))
		}
	}
	names := map[string]bool{}
	for _, tool := range env.Tools {
		name := tool.Spec().Name
		if name == "" || names[name] {
			faults = append(faults, fmt.Errorf("environment: two tools are named %q, or one has no name", name))
		}
		names[name] = true
	}
	return errors.Join(faults...)
}

// Rollout runs one episode to its end and scores it. Its error is always the machinery's: what the agent
// did wrong, and the limits it ran into, are in the trajectory's stop reason.
func Rollout(ctx context.Context, ticket *schemas.Ticket, env Environment) (*schemas.Trajectory, *Transcript, error) {
	if err := env.validate(); err != nil {
		return nil, nil, err
	}
	return rollout(ctx, newEpisode(ticket, env, nil))
}

func rollout(ctx context.Context, e *Episode) (*schemas.Trajectory, *Transcript, error) {
	defer e.letGo()
	stop, err := e.drive(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.Finish("", stop)
	if e.Oldest() == int64(schemas.NoVersion) {
		if e.stop == schemas.StopTimeout && e.unserved {
			return nil, nil, fmt.Errorf("%w: %w passed", errUnserved, errTimedOut)
		}
		if e.stop == schemas.StopTimeout {
			return nil, nil, fmt.Errorf("%w passed before the policy sampled a token", errTimedOut)
		}
		return nil, nil, fmt.Errorf("%w: the episode ended at once: %s", errNothingSampled, e.stop)
	}
	transcript := e.transcript()
	score, err := e.env.Reward.Score(ctx, e.ticket, transcript)
	if err != nil {
		return nil, nil, fmt.Errorf("score the rollout: %w", err)
	}
	return e.trajectory(score), transcript, nil
}

// drive runs the agent under the time limit and says why it stopped, where the agent itself did not.
func (e *Episode) drive(ctx context.Context) (schemas.StopReason, error) {
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	agentCtx, cancel := ctx, context.CancelFunc(func() {})
	if timeout := e.ticket.Limits.Timeout; timeout > 0 {
		agentCtx, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
	}
	defer cancel()
	err := e.env.Agent.Run(agentCtx, e)
	var stopped *StoppedError
	switch {
	case context.Cause(ctx) != nil:
		return "", context.Cause(ctx) // cut off from outside: whatever the agent made of it
	case e.finished, err == nil:
		return schemas.StopFormat, nil // StopFormat counts only if the agent did not finish
	case errors.As(err, &stopped):
		return stopped.Reason, nil
	case errors.Is(context.Cause(agentCtx), errTimedOut):
		return schemas.StopTimeout, nil
	}
	return "", fmt.Errorf("run the agent: %w", err)
}

// letGo tells everybody who keeps something for the episode that it is over.
func (e *Episode) letGo() {
	if policy, ok := e.env.Policy.(Forgetter); ok {
		_ = policy.Forget(e.ticket.ID) // a hint: what is not told to forget drops the longest idle in time
	}
	for _, tool := range e.env.Tools {
		if tool, ok := tool.(EpisodeTool); ok {
			tool.EndEpisode(e.ticket.ID)
		}
	}
}

func (e *Episode) trajectory(score Score) *schemas.Trajectory {
	t := e.ticket
	return &schemas.Trajectory{
		Run: t.Run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Attempt: t.Attempt, Sample: t.Sample,
		GroupSize: t.GroupSize, Task: t.Task, PromptID: t.Prompt.ID, Source: t.Prompt.Source,
		Segments: e.segments, Turns: e.turns,
		Reward: score.Total, Rewards: score.Components, Answer: e.answer, Stop: e.stop,
		StartedAt: e.started, FinishedAt: time.Now().UTC(),
	}
}
