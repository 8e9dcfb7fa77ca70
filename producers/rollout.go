package producers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Environment holds the parts that an episode runs with. All of it is used by many episodes at once.
type Environment struct {
	// Recording answers the tickets in place of episodes; no other part is needed then. nil has each ticket's episode played.
	Recording Recording
	Policy    Policy
	Tokenizer Tokenizer
	Agent     Agent
	// AgentName and RewardName are the names of the agent and the reward in the configuration, for messages; "" is none.
	AgentName, RewardName string
	// Tools that the agent may call, by distinct names; nil is none.
	Tools  []Tool
	Reward Reward
	// MaxSegments ends an episode that would begin another segment where its ticket has no bound of its own: the trainer refuses
	// trajectories beyond. 0 ends none.
	MaxSegments int
	// Results are what calls of tools return in place of their tools, by [Call.Index]: these calls are not made. nil replaces none.
	Results map[int]string
	// Watch is told each move of an episode as it comes, from several goroutines where several contexts or calls go on at the same time;
	// nil for nobody. It must not call the episode.
	Watch func(Move)
	// metrics are the producer's; nil counts nothing.
	metrics *Metrics
	// late is told of requests after an episode's end; nil for nobody.
	late *lateWatch
	// stops are the stop tokens of the tokenizer's stop texts; nil is none known yet.
	stops *stopTokens
}

// checkParts reports every part that is missing.
func (env Environment) checkParts() error {
	if env.Recording != nil {
		return nil
	}
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

// Rollout runs an episode to its end and scores it. Its error is always the machinery's: the agent's faults, and the limits that it ran
// into, are in the trajectory's stop reason. A recorded answer has no transcript.
func Rollout(ctx context.Context, ticket *schemas.Ticket, env Environment) (*schemas.Trajectory, *Transcript, error) {
	if err := env.checkParts(); err != nil {
		return nil, nil, err
	}
	if env.Recording != nil {
		t, err := recallTrajectory(ctx, ticket, env.Recording)
		return t, nil, err
	}
	e := newEpisode(ticket, env, nil)
	defer e.closeSessions(ctx)
	return runRollout(ctx, e)
}

// runRollout runs an episode and leaves its sessions open: the caller closes the episode.
func runRollout(ctx context.Context, e *Episode) (trajectory *schemas.Trajectory, transcript *Transcript, err error) {
	err = guardPart(fmt.Sprintf("a tool or the tokenizer %T", e.env.Tokenizer), func() (err error) {
		trajectory, transcript, err = e.runAndScore(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return trajectory, transcript, nil
}

// runAndScore runs and scores the episode; panics of the agent and of the reward are errors.
func (e *Episode) runAndScore(ctx context.Context) (*schemas.Trajectory, *Transcript, error) {
	stop, err := e.runAgent(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.Finish("", stop)
	if e.Oldest() == int64(schemas.NoVersion) {
		e.keepDraft()
	}
	if e.Oldest() == int64(schemas.NoVersion) {
		if e.stop == schemas.StopTimeout && e.unserved {
			return nil, nil, fmt.Errorf("%w: %w passed", errUnserved, errTimedOut)
		}
		if e.stop == schemas.StopTimeout {
			return nil, nil, fmt.Errorf("%w passed before the policy sampled a token", errTimedOut)
		}
		return nil, nil, fmt.Errorf("%w: the episode ended at once: %s", errNothingSampled, e.stop)
	}
	transcript := e.newTranscript()
	transcript.Workspace = e.firstWorkspace()
	var score Score
	defer e.activity.beginCall(PartReward, e.env.RewardName)()
	err = guardPart(fmt.Sprintf("reward %T", e.env.Reward), func() (err error) {
		score, err = e.env.Reward.Score(e.withEpisode(ctx), e.ticket, transcript)
		return err
	})
	if err != nil {
		return nil, nil, blamePart(PartReward, e.env.RewardName, err)
	}
	transcript.Workspace, transcript.pieces = nil, nil // its sessions are about to be closed, and its tokens are the trajectory's
	trajectory, err := e.newTrajectory(score)
	if err != nil {
		return nil, nil, blamePart(PartReward, e.env.RewardName, err)
	}
	return trajectory, transcript, nil
}

// leastTimeLeft is how long an agent has at least whose episode was taken up: it is given its recorded answers again.
const leastTimeLeft = time.Second

// runAgent runs the agent under the time limit and returns why it stopped, where the agent itself did not.
func (e *Episode) runAgent(ctx context.Context) (schemas.StopReason, error) {
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	end, err := e.openInTime(ctx)
	defer end()
	if err != nil {
		return "", err
	}
	agentCtx, cancel := e.limitAgent(e.withEpisode(ctx))
	defer cancel()
	err = guardPart(fmt.Sprintf("agent %T", e.env.Agent), func() error { return e.env.Agent.Run(agentCtx, e) })
	var stopped *StoppedError
	switch {
	case findPanic(err) != nil:
		return "", err // a fault in a program, even after the agent had finished
	case context.Cause(ctx) != nil:
		return "", context.Cause(ctx) // cut off from outside: whatever the agent made of it
	case e.finished, err == nil:
		return schemas.StopFormat, nil // StopFormat counts only if the agent did not finish
	case errors.As(err, &stopped):
		return stopped.Reason, nil
	case errors.Is(context.Cause(agentCtx), errTimedOut):
		return schemas.StopTimeout, nil
	}
	return "", blamePart(PartAgent, e.env.AgentName, err)
}

// newTrajectory returns the episode's record, with its scores.
func (e *Episode) newTrajectory(score Score) (*schemas.Trajectory, error) {
	if score.Turns != nil && len(score.Turns) != len(e.turns) {
		return nil, fmt.Errorf("%d rewards of turns for %d turns", len(score.Turns), len(e.turns))
	}
	for name := range score.Agents {
		if !slices.ContainsFunc(e.contexts, func(c *Context) bool { return c.agent == name }) {
			return nil, fmt.Errorf("a reward for agent %q, which took no part", name)
		}
	}
	turns := make([]schemas.Turn, len(e.turns))
	for i, t := range e.turns {
		turns[i] = t.Turn
		if score.Turns != nil {
			turns[i].Reward = score.Turns[i]
		}
	}
	t := e.ticket
	trajectory := &schemas.Trajectory{
		Run: t.Run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Attempt: t.Attempt, Sample: t.Sample,
		GroupSize: t.GroupSize, Task: t.Task, PromptID: t.Prompt.ID, Source: t.Prompt.Source,
		Segments: e.segments, Turns: turns,
		Reward: score.Total, Rewards: score.Components, AgentRewards: score.Agents, Answer: e.answer, Stop: e.stop,
		StartedAt: e.startedAt(), FinishedAt: time.Now().UTC(), Forked: e.fork.describeFork(),
	}
	fitTexts(trajectory, schemas.MaxText(max(t.Limits.MaxTokens, trajectory.Tokens())))
	return trajectory, nil
}
