package assembly

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Score asks n questions of a split, as many of each task as of any other, and reports the share answered rightly. In a run
// of several tasks a source is named with its task, and the tasks' own scores are in the report by the task's name.
func (p *Sampler) Score(ctx context.Context, s *Run, c *Course, q Question) (*Score, error) {
	out := &Score{EvalReport: &producers.EvalReport{}}
	share, several := (q.N+len(c.Tasks)-1)/len(c.Tasks), len(c.Tasks) > 1
	for _, t := range c.Tasks {
		r, err := p.scoreTask(ctx, s, c, t, q, share)
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

// scoreTask is score for one task.
func (p *Sampler) scoreTask(ctx context.Context, s *Run, c *Course, t *Task, q Question, n int) (*producers.EvalReport, error) {
	env, limits := c.scoredEnvironment(t, p, q)
	sample := t.Data.Sample(q.Split, n, ScoreSeed)
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
		Version: p.oldest, Run: s.Config.Run.Name, Name: name, Task: t.Name, Temperature: q.Temperature, Samples: max(1, q.Repeat), Limits: limits,
		Concurrency: s.Config.Eval.Concurrency, Seed: ScoreSeed, Seen: q.Seen, Attempts: ScoreAttempts, RetryDelay: scoreRetryDelay, Reward: t.reward,
	})
	if p.producers != nil && r != nil {
		p.account.Add(r)
	}
	return r, err
}

// scoredEnvironment is what a task's episodes run in for scores.
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

// addTask takes the report on one task into that on several.
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

// Question says what is asked for a score, and how.
type Question struct {
	Split       tasks.Split
	N           int
	Temperature float32
	NoTool      bool
	// Repeat is how often each is asked; 0 is once. timeout bounds each rollout in place of the task's limit; 0 leaves
	// that, and a negative one is no bound.
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

// scoreVersions follows the published versions and scores each eval.every-th on the validation split, until trained ends. The score
// that is under way then is brought to its end, unless ctx ends too: a short run has one at least.
func (s *Run) scoreVersions(ctx, trained context.Context, run *streams.Run, c *Course, book *recordBook) error {
	policy, wait, err := s.newRunSampler(context.WithoutCancel(ctx), run, c, trained.Done())
	if err != nil {
		return err
	}
	scored, shown := int64(-1), int64(-1)
	err = run.FollowWeights(trained, func(m *schemas.Manifest) error {
		if scored >= 0 && m.Version < scored+s.Config.Eval.Every {
			return nil
		}
		show := showsRollout(s.Config.Eval.Show, shown, m.Version)
		err := s.scoreVersion(ctx, run, policy, c, m, book, show)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("score a version", "policy_version", m.Version, "err", err)
			return nil // the next version has its own chance
		}
		scored = m.Version - m.Version%s.Config.Eval.Every
		if show {
			shown = m.Version
		}
		return nil
	})
	if trained.Err() != nil {
		err = nil
	}
	return errors.Join(err, wait())
}

// showsRollout says whether a rollout of a version is printed: after every versions, 0 for never. shown is the last version of
// which a rollout was printed, -1 before the first.
func showsRollout(every, shown, version int64) bool {
	return every > 0 && (shown < 0 || version >= shown+every)
}

// scoreVersion scores one version; with show it also prints a rollout of it, each version another question's.
func (s *Run) scoreVersion(ctx context.Context, run *streams.Run, policy *Sampler, c *Course, m *schemas.Manifest, book *recordBook, show bool) error {
	began := time.Now()
	if err := policy.bringVersion(ctx, s, run, c, m); err != nil {
		return err
	}
	var asked []*schemas.Trajectory
	r, err := policy.Score(ctx, s, c, Question{
		Split: tasks.Validation, N: s.Config.Eval.Questions, Seen: func(t *schemas.Trajectory) { asked = append(asked, t) },
	})
	if err != nil {
		return err
	}
	if r.Abandoned > 0 { // the score of a part is not that of the whole
		return fmt.Errorf("%d of %d evaluation tickets are abandoned, %d were scored and %d failed: %s",
			r.Abandoned, len(r.Samples), r.N, r.Failed, firstAbandoned(r.Samples))
	}
	values := map[string]float64{
		metrics.EvalExactMatch.Name: r.ExactMatch, metrics.EvalReward.Name: r.Reward, metrics.EvalTurns.Name: r.Turns, metrics.EvalQuestions.Name: float64(r.N),
		metrics.TimeEval.Name: time.Since(began).Seconds(), metrics.EvalVersions.Name: float64(r.NewestVersion - r.OldestVersion + 1),
		metrics.EvalFailed.Name: float64(r.Failed),
	}
	for source, score := range r.BySource {
		values[metrics.EvalExactMatchBySource.Of(source)] = score.ExactMatch
	}
	for task, score := range r.ByTask {
		values[metrics.EvalTask.Of(task)] = score.ExactMatch
	}
	book.addEvent(ctx, schemas.Event{
		Run: run.Name(), Type: schemas.EventEvaluated, At: time.Now().UTC(), Role: "trainer",
		PolicyVersion: m.Version, Metrics: values,
	})
	// One whose policy sampled nothing has no context to show.
	asked = slices.DeleteFunc(asked, func(t *schemas.Trajectory) bool { return len(t.Segments) == 0 })
	if n := int64(len(asked)); show && n > 0 {
		book.view.Rollout(m.Version, report.NewRollout(asked[m.Version%n], c.Tokenizer.Decode))
	}
	return nil
}

// firstAbandoned is why the first of the abandoned rollouts is.
func firstAbandoned(samples []producers.EvalSample) string {
	for _, s := range samples {
		if strings.Contains(s.Error, producers.ErrAbandoned.Error()) {
			return s.Error
		}
	}
	return ""
}

// fetchVersion reads a published version, which must be of the run's tokenizer.
func (s *Run) fetchVersion(ctx context.Context, run *streams.Run, c *Course, m *schemas.Manifest) (consumers.Snapshot, error) {
	source, err := weights.NewLoader(run, s.Config.Weights)
	if err != nil {
		return consumers.Snapshot{}, err
	}
	v, err := consumers.Fetch(ctx, source, m, schemas.ContentHash(c.Tokenizer.JSON()))
	if err != nil {
		return v, fmt.Errorf("fetch version %d: %w", m.Version, err)
	}
	return v, nil
}
