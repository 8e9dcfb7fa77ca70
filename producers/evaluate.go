package producers

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// EvalConfig says how a policy is evaluated.
type EvalConfig struct {
	// Run names the run in requests to the policy; "" will do in one process.
	Run string
	// Name keeps the evaluation's episodes apart from others that use the same policy.
	Name string
	// Temperature divides the logits; 0 is greedy.
	Temperature float32
	// Samples is how often each prompt is asked, >= 1; more than one makes sense above temperature 0.
	Samples int
	// Limits of each rollout. MaxTurns 0 takes the tools away altogether.
	Limits schemas.Limits
	// Concurrency is how many episodes run at once, >= 1.
	Concurrency int
	// Seed fixes what is drawn.
	Seed uint64
	// Seen is given each rollout when all have ended, in the order of the prompts; nil for nobody.
	Seen func(*schemas.Trajectory)
}

// Validate reports every fault.
func (c EvalConfig) Validate() error {
	return check.All(
		check.Positive("samples", c.Samples),
		check.Positive("concurrency", c.Concurrency),
		check.NotNegative("temperature", c.Temperature),
		check.Positive("limits.max_tokens", c.Limits.MaxTokens),
	)
}

// EvalReport is what an evaluation found.
type EvalReport struct {
	EvalScore
	// BySource has the same for each kind of question.
	BySource map[string]EvalScore `json:"by_source"`
	// Stops counts the rollouts by stop reason.
	Stops map[schemas.StopReason]int `json:"stops"`
	// OldestVersion and NewestVersion are the policy versions that sampled a token.
	OldestVersion int64 `json:"oldest_version"`
	NewestVersion int64 `json:"newest_version"`
}

// EvalScore is the mean over a set of rollouts; all 0 for none.
type EvalScore struct {
	// N counts the rollouts.
	N int `json:"questions"`
	// ExactMatch is the share, 0 to 1, of right answers; Reward the mean reward.
	ExactMatch float64 `json:"exact_match"`
	Reward     float64 `json:"reward"`
	// Turns is the mean number of tool calls; Tokens the mean number of sampled tokens.
	Turns  float64 `json:"turns"`
	Tokens float64 `json:"tokens"`
}

// StandardError is the standard error of ExactMatch if the rollouts were independent.
func (s EvalScore) StandardError() float64 {
	if s.N == 0 {
		return 0
	}
	return math.Sqrt(s.ExactMatch * (1 - s.ExactMatch) / float64(s.N))
}

func (s *EvalScore) add(t *schemas.Trajectory, turns int) {
	s.N++
	s.ExactMatch += t.Rewards[ComponentExactMatch]
	s.Reward += t.Reward
	s.Turns += float64(turns)
	s.Tokens += float64(t.ActionTokens())
}

func (s EvalScore) mean() EvalScore {
	n := float64(max(1, s.N))
	s.ExactMatch /= n
	s.Reward /= n
	s.Turns /= n
	s.Tokens /= n
	return s
}

// Evaluate runs every prompt Samples times and reports means. It stops at the first error.
func Evaluate(ctx context.Context, env Environment, prompts []schemas.Prompt, cfg EvalConfig) (*EvalReport, error) {
	if err := errors.Join(cfg.Validate(), env.validate()); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	rollouts := make([]evaluated, len(prompts)*cfg.Samples)
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cfg.Concurrency)
	for i := range rollouts {
		if running.Err() != nil {
			break
		}
		group.Go(func() (err error) {
			rollouts[i], err = cfg.evaluate(running, env, prompts[i/cfg.Samples], i)
			return err
		})
	}
	if err := errors.Join(group.Wait(), context.Cause(ctx)); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	if cfg.Seen != nil {
		for _, e := range rollouts {
			cfg.Seen(e.trajectory)
		}
	}
	return report(rollouts), nil
}

// evaluated is one rollout and the number of its tool calls.
type evaluated struct {
	trajectory *schemas.Trajectory
	turns      int
}

func (c EvalConfig) evaluate(ctx context.Context, env Environment, prompt schemas.Prompt, i int) (evaluated, error) {
	trajectory, transcript, err := Rollout(ctx, c.ticket(prompt, i/c.Samples, i%c.Samples), env)
	if errors.Is(err, errNothingSampled) {
		return evaluated{&schemas.Trajectory{Source: prompt.Source, Stop: schemas.StopTokens}, 0}, nil
	}
	if err != nil {
		return evaluated{}, fmt.Errorf("prompt %s: %w", prompt.ID, err)
	}
	return evaluated{trajectory, transcript.Calls()}, nil
}

func (c EvalConfig) ticket(prompt schemas.Prompt, cursor, sample int) *schemas.Ticket {
	group := fmt.Sprintf("eval-%s-%d", c.Name, cursor)
	return &schemas.Ticket{
		Run: c.Run, ID: fmt.Sprintf("%s-%d", group, sample), Group: group, Cursor: uint64(cursor),
		Sample: sample, GroupSize: c.Samples, Prompt: prompt,
		Seed:     c.Seed + uint64(cursor*c.Samples+sample)*schemas.SeedStep,
		Sampling: schemas.Sampling{Temperature: c.Temperature}, Limits: c.Limits,
	}
}

// report takes the means, in the order of the prompts: the same rollouts give the same report to the last bit.
func report(rollouts []evaluated) *EvalReport {
	r := &EvalReport{
		BySource: map[string]EvalScore{}, Stops: map[schemas.StopReason]int{},
		OldestVersion: int64(schemas.NoVersion), NewestVersion: int64(schemas.NoVersion),
	}
	for _, e := range rollouts {
		r.add(e.trajectory, e.turns)
		source := r.BySource[e.trajectory.Source]
		source.add(e.trajectory, e.turns)
		r.BySource[e.trajectory.Source] = source
		r.Stops[e.trajectory.Stop]++
		if v := e.trajectory.OldestVersion(); v != int64(schemas.NoVersion) && (r.OldestVersion < 0 || v < r.OldestVersion) {
			r.OldestVersion = v
		}
		r.NewestVersion = max(r.NewestVersion, e.trajectory.NewestVersion())
	}
	r.EvalScore = r.mean()
	for source, score := range r.BySource {
		r.BySource[source] = score.mean()
	}
	return r
}
