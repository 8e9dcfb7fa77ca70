package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/trainer/metrics"
)

// sampler is a private inference engine: a policy whose version changes only when its owner says so, which
// makes a score belong to one version.
type sampler struct {
	batcher *consumers.Batcher
}

// newSampler starts one; it ends with ctx. The wait returns when it has.
func newSampler(ctx context.Context, s *session) (*sampler, func() error, error) {
	engines, err := s.cfg.SamplerBackend()
	if err != nil {
		return nil, nil, err
	}
	cfg := s.cfg.Inference
	cfg.Slots, cfg.MaxRunning = max(s.cfg.Eval.Concurrency, 8), 0
	cfg.StepTokenBudget = max(cfg.StepTokenBudget, cfg.Slots)
	p := &sampler{consumers.NewBatcher(cfg, engines.NewDecoder, nil)}
	ctx, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return p.batcher.Run(ctx) })
	return p, func() error { stop(); return group.Wait() }, nil
}

// use puts a version to use.
func (p *sampler) use(ctx context.Context, v consumers.Snapshot) error {
	_, err := p.batcher.Swap(ctx, v)
	return err
}

// Generate makes the sampler a producers.Policy.
func (p *sampler) Generate(ctx context.Context, req *schemas.GenerateRequest) (*generate.Result, error) {
	out := &generate.Result{Engine: "scores"}
	err := p.batcher.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
		out.Tokens = append(out.Tokens, c.Tokens...)
		out.Logprobs = append(out.Logprobs, c.Logprobs...)
		out.Versions = append(out.Versions, c.Versions...)
		out.Stop = c.Stop
		if c.Done && c.Stop == schemas.GenerateError {
			return errors.New(c.Error)
		}
		return nil
	})
	return out, err
}

// Forget frees the cache of an episode, as a producers.Forgetter does.
func (p *sampler) Forget(episode string) error {
	p.batcher.Forget(episode)
	return nil
}

// score asks n questions of a split, as many of each task as of any other, and reports the share answered rightly. In a run
// of several tasks a source is named with its task, and the tasks' own scores are in the report by the task's name.
func (p *sampler) score(ctx context.Context, s *session, c *course, q question) (*score, error) {
	out := &score{EvalReport: &producers.EvalReport{}}
	share, several := (q.n+len(c.tasks)-1)/len(c.tasks), len(c.tasks) > 1
	for _, t := range c.tasks {
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
		out.add(t.name, r)
	}
	if out.N == 0 {
		return nil, fmt.Errorf("%w in the %s split", errNoQuestion, q.split)
	}
	return out, nil
}

// scoreTask is score for one task.
func (p *sampler) scoreTask(ctx context.Context, s *session, c *course, t *task, q question, n int) (*producers.EvalReport, error) {
	env := c.environment(t, p)
	env.Tools = t.plain
	limits := schemas.Limits{MaxTurns: t.limits.MaxTurns, MaxTokens: t.limits.MaxTokens}
	if q.noTool {
		env.Tools, limits.MaxTurns = nil, 0
	}
	sample := t.Data.Sample(q.split, n, scoreSeed)
	if len(sample) == 0 {
		return nil, fmt.Errorf("%w in the %s split", errNoQuestion, q.split)
	}
	name := q.name()
	if len(c.tasks) > 1 {
		name += "-" + t.name
	}
	return producers.Evaluate(ctx, env, sample, producers.EvalConfig{
		Run: s.cfg.Run.Name, Name: name, Temperature: q.temperature, Samples: 1, Limits: limits,
		Concurrency: s.cfg.Eval.Concurrency, Seed: scoreSeed, Seen: q.seen,
	})
}

// score is the report on all tasks of a run.
type score struct {
	*producers.EvalReport
	// ByTask has the score of each task, in a run of several.
	ByTask map[string]producers.EvalScore `json:"by_task,omitempty"`
}

// add takes the report on one task into that on several.
func (s *score) add(task string, r *producers.EvalReport) {
	if s.ByTask == nil {
		s.ByTask, s.BySource, s.Stops = map[string]producers.EvalScore{}, map[string]producers.EvalScore{}, map[schemas.StopReason]int{}
		s.OldestVersion, s.NewestVersion = r.OldestVersion, r.NewestVersion
	}
	s.ByTask[task] = r.EvalScore
	s.EvalScore = pooled(s.EvalScore, r.EvalScore)
	for source, of := range r.BySource {
		s.BySource[task+"/"+source] = of
	}
	for stop, n := range r.Stops {
		s.Stops[stop] += n
	}
	s.OldestVersion, s.NewestVersion = min(s.OldestVersion, r.OldestVersion), max(s.NewestVersion, r.NewestVersion)
}

// pooled is the score over the rollouts of two.
func pooled(a, b producers.EvalScore) producers.EvalScore {
	n := float64(max(1, a.N+b.N))
	mean := func(x, y float64) float64 { return (x*float64(a.N) + y*float64(b.N)) / n }
	return producers.EvalScore{
		N: a.N + b.N, ExactMatch: mean(a.ExactMatch, b.ExactMatch), Reward: mean(a.Reward, b.Reward),
		Turns: mean(a.Turns, b.Turns), Tokens: mean(a.Tokens, b.Tokens),
	}
}

// errNoQuestion: there is nothing to ask, which is no score of 0.
var errNoQuestion = errors.New("there is no question")

// scoreSeed chooses the questions: the same for every run, so that runs can be compared.
const scoreSeed = 7

// question says what is asked for a score, and how.
type question struct {
	split       tasks.Split
	n           int
	temperature float32
	noTool      bool
	// seen is given each rollout; nil for nobody.
	seen func(*schemas.Trajectory)
}

func (q question) name() string { return fmt.Sprintf("%s-%g-%t", q.split, q.temperature, q.noTool) }

// scoreVersions follows the published versions and scores each eval.every-th on the validation split, until trained ends. The score
// that is under way then is brought to its end, unless ctx ends too: a short run has one at least.
func (s *session) scoreVersions(ctx, trained context.Context, run *streams.Run, c *course, book *recordBook) error {
	policy, wait, err := newSampler(context.WithoutCancel(ctx), s)
	if err != nil {
		return err
	}
	scored, shown := int64(-1), int64(-1)
	err = run.FollowWeights(trained, func(m *schemas.Manifest) error {
		if scored >= 0 && m.Version < scored+s.cfg.Eval.Every {
			return nil
		}
		show := showsRollout(s.cfg.Eval.Show, shown, m.Version)
		err := s.scoreVersion(ctx, run, policy, c, m, book, show)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("score a version", "policy_version", m.Version, "err", err)
			return nil // the next version has its own chance
		}
		scored = m.Version - m.Version%s.cfg.Eval.Every
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
func (s *session) scoreVersion(ctx context.Context, run *streams.Run, policy *sampler, c *course, m *schemas.Manifest, book *recordBook, show bool) error {
	began := time.Now()
	v, err := s.fetch(ctx, run, c, m)
	if err != nil {
		return err
	}
	if err := policy.use(ctx, v); err != nil {
		return err
	}
	var asked []*schemas.Trajectory
	r, err := policy.score(ctx, s, c, question{
		split: tasks.Validation, n: s.cfg.Eval.Questions, seen: func(t *schemas.Trajectory) { asked = append(asked, t) },
	})
	if err != nil {
		return err
	}
	values := map[string]float64{
		metrics.EvalExactMatch.Name: r.ExactMatch, metrics.EvalReward.Name: r.Reward, metrics.EvalTurns.Name: r.Turns, metrics.EvalQuestions.Name: float64(r.N),
		metrics.TimeEval.Name: time.Since(began).Seconds(),
	}
	for source, score := range r.BySource {
		values[metrics.EvalExactMatchBySource.Of(source)] = score.ExactMatch
	}
	for task, score := range r.ByTask {
		values[metrics.EvalTask.Of(task)] = score.ExactMatch
	}
	book.add(ctx, schemas.Event{
		Run: run.Name(), Type: schemas.EventEvaluated, At: time.Now().UTC(), Role: "trainer",
		PolicyVersion: m.Version, Metrics: values,
	})
	// One whose policy sampled nothing has no context to show.
	asked = slices.DeleteFunc(asked, func(t *schemas.Trajectory) bool { return len(t.Segments) == 0 })
	if n := int64(len(asked)); show && n > 0 {
		book.view.Rollout(m.Version, report.NewRollout(asked[m.Version%n], c.tokenizer.Decode))
	}
	return nil
}

// fetch reads a published version, which must be of the run's tokenizer.
func (s *session) fetch(ctx context.Context, run *streams.Run, c *course, m *schemas.Manifest) (consumers.Snapshot, error) {
	source, err := run.Weights(s.cfg.Weights)
	if err != nil {
		return consumers.Snapshot{}, err
	}
	v, err := consumers.Fetch(ctx, source, m, schemas.ContentHash(c.tokenizer.JSON()))
	if err != nil {
		return v, fmt.Errorf("fetch version %d: %w", m.Version, err)
	}
	return v, nil
}
