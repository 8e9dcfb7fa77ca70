package assembly

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Score asks n questions of a split, as many of each task as of any other, and reports the share answered rightly. In a run
// of several tasks a source is named with its task, and the tasks' own scores are in the report by the task's name.
func (p *Sampler) Score(ctx context.Context, cfg *config.Config, c *Course, q Question) (*Score, error) {
	out := &Score{EvalReport: &producers.EvalReport{}}
	share, several := (q.N+len(c.Tasks)-1)/len(c.Tasks), len(c.Tasks) > 1
	for _, t := range c.Tasks {
		r, err := p.scoreTask(ctx, cfg, c, t, q, share)
		if errors.Is(err, errNoQuestion) && several {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !several {
			out.EvalReport = r
			return out, nil
		}
		out.addTask(t.Name, r)
	}
	if out.N == 0 {
		return nil, fmt.Errorf("%w in the %s split", errNoQuestion, q.Split)
	}
	out.Measures, out.MeasuresBySource = producers.Measured(out.Samples, max(1, q.Repeat))
	return out, nil
}

// scoreTask scores a single task.
func (p *Sampler) scoreTask(ctx context.Context, cfg *config.Config, c *Course, t *Task, q Question, n int) (*producers.EvalReport, error) {
	env, limits := c.scoredEnvironment(t, p, q)
	sample := t.Data.Sample(q.Split, n, ScoreSeed)
	if t.Recording != nil {
		return nil, fmt.Errorf("%w: %w", errNoQuestion, errRecorded)
	}
	if len(sample) == 0 {
		return nil, fmt.Errorf("%w in the %s split", errNoQuestion, q.Split)
	}
	name := q.cacheName()
	if len(c.Tasks) > 1 {
		name += "-" + t.Name
	}
	roll := q.episodeRoller(env, t)
	if p.producers != nil { // the engines keep an episode's cache by the ticket's id
		name, roll = fmt.Sprintf("%s-v%d", name, p.oldest), p.producers.Roll
	}
	r, err := producers.EvaluateBy(ctx, roll, sample, producers.EvalConfig{
		Version: p.oldest, Run: cfg.Run.Name, Name: name, Task: t.Name, Temperature: q.Temperature, Samples: max(1, q.Repeat), Limits: limits,
		TurnTokens:  cfg.Trainer.Sampling.MaxTokens,
		Concurrency: cfg.Eval.Concurrency, Seed: ScoreSeed, Seen: q.Seen, Attempts: ScoreAttempts, RetryDelay: scoreRetryDelay, Reward: t.reward,
	})
	if p.producers != nil && r != nil {
		p.account.Add(r)
	}
	return r, err
}

// scoredEnvironment returns the environment of a task's episodes for scores.
func (c *Course) scoredEnvironment(t *Task, policy producers.Policy, q Question) (producers.Environment, schemas.Limits) {
	env, limits := c.askedEnvironment(t, policy, q)
	env.Reward = withF1{env.Reward}
	return env, limits
}

// episodeRoller runs the episodes: by the agent in its environment, unless the question has its own way.
func (q Question) episodeRoller(env producers.Environment, t *Task) producers.Roll {
	if q.Roll != nil {
		return q.Roll(env, t)
	}
	return func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		return producers.Rollout(ctx, ticket, env)
	}
}

// A rollout of a score that the machinery fails is tried so often, resting so long after the first failure.
const (
	ScoreAttempts   = 4
	scoreRetryDelay = 500 * time.Millisecond
)

// withF1 is a reward that reports the F1 of the answer too, normalised as SQuAD's.
type withF1 struct{ producers.Reward }

// Score adds the component f1 where the reward has none.
func (r withF1) Score(ctx context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	score, err := r.Reward.Score(ctx, ticket, t)
	if _, there := score.Components[componentF1]; err != nil || there || len(ticket.Prompt.Answers) == 0 {
		return score, err
	}
	score.Components = maps.Clone(score.Components)
	if score.Components == nil {
		score.Components = map[string]float64{}
	}
	score.Components[componentF1] = 0
	if t.Stop == schemas.StopAnswer && rewards.SQuAD(t.Answer) != "" {
		score.Components[componentF1] = rewards.F1(rewards.SQuAD, t.Answer, ticket.Prompt.Answers, false)
	}
	return score, nil
}

const componentF1 = "f1"

// Score is the report on all tasks of a run.
type Score struct {
	*producers.EvalReport
	// ByTask has the score of each task, in a run of several.
	ByTask map[string]producers.EvalScore `json:"by_task,omitempty"`
}

// addTask adds the report on a task to the report on several tasks.
func (s *Score) addTask(task string, r *producers.EvalReport) {
	if s.ByTask == nil {
		s.ByTask, s.BySource, s.Stops = map[string]producers.EvalScore{}, map[string]producers.EvalScore{}, map[schemas.StopReason]int{}
		s.OldestVersion, s.NewestVersion = r.OldestVersion, r.NewestVersion
	}
	s.ByTask[task] = r.EvalScore
	s.EvalScore = poolScores(s.EvalScore, r.EvalScore)
	for source, of := range r.BySource {
		s.BySource[task+"/"+source] = of
	}
	for stop, n := range r.Stops {
		s.Stops[stop] += n
	}
	s.OldestVersion, s.NewestVersion = min(s.OldestVersion, r.OldestVersion), max(s.NewestVersion, r.NewestVersion)
	s.Failed += r.Failed
	s.Retried += r.Retried
	s.Abandoned += r.Abandoned
	for why, n := range r.Reasons {
		if s.Reasons == nil {
			s.Reasons = map[string]int{}
		}
		s.Reasons[why] += n
	}
	for _, of := range r.Samples {
		of.ID, of.Source = task+"/"+of.ID, task+"/"+of.Source
		s.Samples = append(s.Samples, of)
	}
}

// poolScores is the score over the rollouts of two.
func poolScores(a, b producers.EvalScore) producers.EvalScore {
	n := float64(max(1, a.N+b.N))
	mean := func(x, y float64) float64 { return (x*float64(a.N) + y*float64(b.N)) / n }
	return producers.EvalScore{
		N: a.N + b.N, ExactMatch: mean(a.ExactMatch, b.ExactMatch), Reward: mean(a.Reward, b.Reward),
		Turns: mean(a.Turns, b.Turns), Tokens: mean(a.Tokens, b.Tokens),
	}
}

// errNoQuestion: there is nothing to ask, which is no score of 0.
var errNoQuestion = errors.New("there is no question")

// ScoreSeed chooses the questions: the same for every run, so that runs can be compared.
const ScoreSeed = 7

// Question selects the questions of a score, and how they are asked.
type Question struct {
	Split       tasks.Split
	N           int
	Temperature float32
	NoTool      bool
	// Repeat is how often each is asked; 0 is once. timeout bounds each rollout in place of the task's limit; 0 leaves that, and a negative
	// timeout is no bound.
	Repeat  int
	Timeout time.Duration
	// Roll runs the episodes otherwise than by the task's agent; nil is by it.
	Roll func(env producers.Environment, t *Task) producers.Roll
	// Seen is given each rollout; nil for nobody.
	Seen func(*schemas.Trajectory)
}

func (q Question) cacheName() string {
	return fmt.Sprintf("%s-%g-%t", q.Split, q.Temperature, q.NoTool)
}
