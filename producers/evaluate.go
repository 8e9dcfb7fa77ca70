package producers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

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
	// Task is the name of the task that the prompts are of, for tools and rewards; "" will do.
	Task string
	// Version is the policy version that the tickets are pinned to, for a [Roll] elsewhere; a policy here has a single version anyhow.
	Version int64
	// Temperature divides the logits; 0 is greedy.
	Temperature float32
	// Samples is how often each prompt is asked, >= 1; more than 1 makes sense above temperature 0.
	Samples int
	// Limits of each rollout. MaxTurns 0 takes the tools away altogether.
	Limits schemas.Limits
	// TurnTokens bounds the sampled tokens of a turn, as trainer.sampling.max_tokens does in training; 0 leaves Limits alone to bound them.
	TurnTokens int
	// Concurrency is how many episodes run at once, >= 1.
	Concurrency int
	// Seed fixes the random numbers.
	Seed uint64
	// Attempts is how often a rollout that the machinery failed is tried, such as for a tool or an engine that is away; 0 is once.
	// RetryDelay is how long it rests after the first failure; the rest doubles with every further attempt.
	Attempts   int
	RetryDelay time.Duration
	// Reward says which answers count as the same in a majority, where it is a [Voter]; it scores nothing here. Nil, and any other reward,
	// compares their words.
	Reward Reward
	// Seen is given each rollout when all have ended, in the order of the prompts; nil for nobody.
	Seen func(*schemas.Trajectory)
}

// Validate reports every fault.
func (c EvalConfig) Validate() error {
	return check.All(
		check.Positive("samples", c.Samples),
		check.Positive("concurrency", c.Concurrency),
		check.NotNegative("temperature", c.Temperature),
		check.NotNegative("turn_tokens", c.TurnTokens),
		check.Positive("limits.max_tokens", c.Limits.MaxTokens),
		check.NotNegative("limits.timeout", c.Limits.Timeout),
		check.NotNegative("attempts", c.Attempts),
		check.NotNegative("retry_delay", c.RetryDelay),
	)
}

// EvalReport is the result of an evaluation.
type EvalReport struct {
	EvalScore
	// BySource has the same for each kind of question.
	BySource map[string]EvalScore `json:"by_source"`
	// Stops counts the rollouts by stop reason.
	Stops map[schemas.StopReason]int `json:"stops"`
	// Failed counts the rollouts that the machinery failed to the last attempt; they are in no score. Retried counts the attempts that
	// were made again.
	Failed  int `json:"failed"`
	Retried int `json:"retried"`
	// Reasons counts the failed rollouts by a word for the reason, where their runner gives a word; nil where none failed.
	Reasons map[string]int `json:"reasons,omitempty"`
	// Abandoned counts the rollouts that nobody could run any more: they are neither scored nor failed.
	Abandoned int `json:"abandoned,omitempty"`
	// Measures are exact match and the other components by name: mean_at_N of N samples a question, pass_at_K and maj_at_K for the powers
	// of two up to n, and each component, with intervals. MeasuresBySource has the same for each kind of question.
	Measures         map[string]Measure            `json:"measures"`
	MeasuresBySource map[string]map[string]Measure `json:"measures_by_source"`
	// Samples are the rollouts, in the order of the prompts.
	Samples []EvalSample `json:"-"`
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

// FewQuestions is the number of rollouts below which a score is too uncertain to compare runs by.
const FewQuestions = 30

// StandardError is the standard error of ExactMatch if the rollouts were independent, 0 without rollouts. Fewer than [FewQuestions] that
// are all right, or all wrong, do not make a score certain: then two right and two wrong rollouts are added (Agresti and Coull).
func (s EvalScore) StandardError() float64 {
	if s.N == 0 {
		return 0
	}
	if s.N < FewQuestions && (s.ExactMatch == 0 || s.ExactMatch == 1) {
		n := float64(s.N + 4)
		p := (s.ExactMatch*float64(s.N) + 2) / n
		return math.Sqrt(p * (1 - p) / n)
	}
	return math.Sqrt(s.ExactMatch * (1 - s.ExactMatch) / float64(s.N))
}

// addRollout adds the scores of a rollout.
func (s *EvalScore) addRollout(e evaluated) {
	s.N++
	s.ExactMatch += e.trajectory.Rewards[ComponentExactMatch]
	s.Reward += e.trajectory.Reward
	s.Turns += float64(e.transcript.Calls())
	s.Tokens += float64(e.transcript.Sampled)
}

// average divides the sums by the number of rollouts.
func (s EvalScore) average() EvalScore {
	n := float64(max(1, s.N))
	s.ExactMatch /= n
	s.Reward /= n
	s.Turns /= n
	s.Tokens /= n
	return s
}

// Roll runs an episode to its end and scores it; its error is the machinery's. [Rollout] in an environment is a Roll.
type Roll func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *Transcript, error)

// Evaluate runs every prompt Samples times and reports means. A rollout that the machinery fails is tried again, Attempts times, and
// then counted as failed and left out of the scores. It is an error if all fail: the report then has no score.
func Evaluate(ctx context.Context, env Environment, prompts []schemas.Prompt, cfg EvalConfig) (*EvalReport, error) {
	if err := errors.Join(cfg.Validate(), env.checkParts()); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	if cfg.Reward == nil {
		cfg.Reward = env.Reward
	}
	return EvaluateBy(ctx, func(ctx context.Context, t *schemas.Ticket) (*schemas.Trajectory, *Transcript, error) {
		return Rollout(ctx, t, env)
	}, prompts, cfg)
}

// EvaluateBy is Evaluate of whatever runs episodes.
func EvaluateBy(ctx context.Context, roll Roll, prompts []schemas.Prompt, cfg EvalConfig) (*EvalReport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	rollouts := make([]evaluated, len(prompts)*cfg.Samples)
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cfg.Concurrency)
	for i := range rollouts {
		if running.Err() != nil {
			break
		}
		group.Go(func() error {
			rollouts[i] = cfg.evaluateSample(running, roll, prompts[i/cfg.Samples], i)
			return context.Cause(running)
		})
	}
	if err := errors.Join(group.Wait(), context.Cause(ctx)); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	failed := 0
	for _, e := range rollouts {
		if e.err != nil {
			failed++
		}
	}
	if failed == len(rollouts) && failed > 0 {
		return newReport(rollouts, cfg), fmt.Errorf("evaluate: each of %d rollouts failed: %w", failed, rollouts[0].err)
	}
	if cfg.Seen != nil {
		for _, e := range rollouts {
			if e.err == nil {
				cfg.Seen(e.trajectory)
			}
		}
	}
	return newReport(rollouts, cfg), nil
}

// evaluated is a rollout with its trajectory, or the reason why there is no trajectory.
type evaluated struct {
	prompt     schemas.Prompt
	sample     int
	trajectory *schemas.Trajectory
	transcript *Transcript
	attempts   int
	err        error
}

// roomPatience is for how long a rollout is tried again for which nobody has room, as where training has all tool workers.
const roomPatience = time.Hour

// evaluateSample runs a rollout, and again where the machinery failed. An attempt that nobody had room for is none.
func (c EvalConfig) evaluateSample(ctx context.Context, roll Roll, prompt schemas.Prompt, i int) evaluated {
	e := evaluated{prompt: prompt, sample: i % c.Samples}
	began, failed := time.Now(), 0
	for delay := c.RetryDelay; ; {
		e.attempts++
		e.trajectory, e.transcript, e.err = roll(ctx, c.newTicket(prompt, i/c.Samples, e.sample))
		switch {
		case errors.Is(e.err, errNothingSampled):
			e.trajectory, e.transcript, e.err = &schemas.Trajectory{Source: prompt.Source, Stop: schemas.StopTokens}, &Transcript{Stop: schemas.StopTokens}, nil
			return e
		case e.err == nil:
			return e
		}
		e.err = fmt.Errorf("prompt %s: %w", prompt.ID, e.err)
		wait := max(c.RetryDelay, time.Second)
		if !errors.Is(e.err, ErrNoRoom) || time.Since(began) >= roomPatience {
			failed, wait, delay = failed+1, delay, 2*delay
		}
		if failed >= max(1, c.Attempts) || isUnretryable(e.err) || errors.Is(e.err, ErrAbandoned) || !waitFor(ctx, wait) {
			return e
		}
	}
}

// waitFor waits; false means that ctx ended first.
func waitFor(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// evalGroup begins the names of evaluation groups; training groups begin with a g.
const evalGroup = "eval-"

// isEvaluation reports whether a ticket belongs to an evaluation.
func isEvaluation(t *schemas.Ticket) bool { return strings.HasPrefix(t.Group, evalGroup) }

// newTicket makes the ticket of a sample of a prompt.
func (c EvalConfig) newTicket(prompt schemas.Prompt, cursor, sample int) *schemas.Ticket {
	group := fmt.Sprintf("%s%s-%d", evalGroup, c.Name, cursor)
	return &schemas.Ticket{
		Run: c.Run, ID: fmt.Sprintf("%s-%d", group, sample), Group: group, Cursor: uint64(cursor),
		Sample: sample, GroupSize: c.Samples, Task: c.Task, Prompt: prompt,
		Seed:     c.Seed + uint64(cursor*c.Samples+sample)*schemas.SeedStep,
		Sampling: schemas.Sampling{Temperature: c.Temperature, MaxTokens: c.TurnTokens}, Limits: c.Limits,
		PolicyVersion: c.Version, MinVersion: c.Version,
	}
}

// countLost counts a rollout without a score.
func (r *EvalReport) countLost(err error) {
	if errors.Is(err, ErrAbandoned) {
		r.Abandoned++
		return
	}
	r.Failed++
	why := "failed"
	if reason, ok := errors.AsType[reasoned](err); ok {
		why = reason.Reason()
	}
	if r.Reasons == nil {
		r.Reasons = map[string]int{}
	}
	r.Reasons[why]++
}

// reasoned is an error that has a word for counters.
type reasoned interface {
	error
	Reason() string
}

// newReport computes the means, in the order of the prompts: the same rollouts give the same report to the last bit.
func newReport(rollouts []evaluated, cfg EvalConfig) *EvalReport {
	r := &EvalReport{
		BySource: map[string]EvalScore{}, Stops: map[schemas.StopReason]int{},
		OldestVersion: int64(schemas.NoVersion), NewestVersion: int64(schemas.NoVersion),
	}
	for _, e := range rollouts {
		r.Retried += e.attempts - 1
		r.Samples = append(r.Samples, e.newSample())
		if e.err != nil {
			r.countLost(e.err)
			continue
		}
		r.addRollout(e)
		source := r.BySource[e.trajectory.Source]
		source.addRollout(e)
		r.BySource[e.trajectory.Source] = source
		r.Stops[e.trajectory.Stop]++
		if v := e.trajectory.OldestVersion(); v != int64(schemas.NoVersion) && (r.OldestVersion < 0 || v < r.OldestVersion) {
			r.OldestVersion = v
		}
		r.NewestVersion = max(r.NewestVersion, e.trajectory.NewestVersion())
	}
	r.EvalScore = r.average()
	for source, score := range r.BySource {
		r.BySource[source] = score.average()
	}
	countVotes(r.Samples, cfg.Reward)
	r.Measures, r.MeasuresBySource = Measured(r.Samples, cfg.Samples)
	return r
}
