package assembly

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/trainer/metrics"
)

// versionScorer scores the versions of a run on the validation split while the run goes on.
type versionScorer struct {
	process
	run    *streams.Run
	course *Course
	book   *recordBook // takes the scores
	opener samplerOpener
}

// scoreVersions follows the published versions and scores each eval.every-th on the validation split, until trained ends. The score that is
// under way then is brought to its end, unless ctx ends too: a short run has at least a single score.
func (v *versionScorer) scoreVersions(ctx, trained context.Context) error {
	policy, wait, err := v.newRunSampler(context.WithoutCancel(ctx), trained.Done())
	if err != nil {
		return err
	}
	scored, shown := int64(-1), int64(-1)
	err = v.run.FollowWeights(trained, func(m *schemas.Manifest) error {
		if scored >= 0 && m.Version < scored+v.cfg.Eval.Every {
			return nil
		}
		show := showsRollout(v.cfg.Eval.Show, shown, m.Version)
		err := v.scoreVersion(ctx, policy, m, show)
		if err != nil && ctx.Err() == nil {
			v.log.Warn("score a version", "policy_version", m.Version, "err", err)
			return nil // the next version has its own chance
		}
		scored = m.Version - m.Version%v.cfg.Eval.Every
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

// showsRollout reports whether a rollout of a version is printed: after every versions, 0 for never. shown is the last version of which a
// rollout was printed, -1 before the first.
func showsRollout(every, shown, version int64) bool {
	return every > 0 && (shown < 0 || version >= shown+every)
}

// scoreVersion scores a version; with show it also prints a rollout of it, each version another question's.
func (v *versionScorer) scoreVersion(ctx context.Context, policy *Sampler, m *schemas.Manifest, show bool) error {
	began := time.Now()
	if err := policy.bringVersion(ctx, versionSource{run: v.run, course: v.course, weights: v.cfg.Weights}, m); err != nil {
		return err
	}
	var asked []*schemas.Trajectory
	r, err := policy.Score(ctx, v.cfg, v.course, Question{
		Split: tasks.Validation, N: v.cfg.Eval.Questions, Seen: func(t *schemas.Trajectory) { asked = append(asked, t) },
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
	v.book.addEvent(ctx, schemas.Event{
		Run: v.run.Name(), Type: schemas.EventEvaluated, At: time.Now().UTC(), Role: "trainer",
		PolicyVersion: m.Version, Metrics: values,
	})
	// An episode whose policy sampled nothing has no context to show.
	asked = slices.DeleteFunc(asked, func(t *schemas.Trajectory) bool { return len(t.Segments) == 0 })
	if n := int64(len(asked)); show && n > 0 {
		v.book.view.Rollout(m.Version, report.NewRollout(asked[m.Version%n], v.course.Tokenizer.Decode))
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

// newRunSampler makes the sampler that scores the versions of a running run, until ending: the run's inference servers where it has them,
// and a private engine otherwise, which reads large versions from files.
func (v *versionScorer) newRunSampler(ctx context.Context, ending <-chan struct{}) (*Sampler, func() error, error) {
	account, err := evaluation.NewAccount(v.registry)
	if err != nil {
		return nil, nil, err
	}
	if v.cfg.Eval.At == config.EvalAtProducers {
		asks := evaluation.NewClient(v.run, evaluation.ClientOptions{Kept: v.run.Keeps, Ending: ending})
		return &Sampler{producers: asks, account: account}, func() error { return nil }, nil
	}
	if _, servers := serverKinds[v.cfg.Inference.Engine]; servers {
		p := &Sampler{calls: generate.NewClient(v.run, generate.ClientOptions{Ending: ending})}
		return p, func() error { p.calls.Close(); return nil }, nil
	}
	p, wait, err := newSampler(ctx, v.cfg)
	if err != nil {
		return nil, nil, err
	}
	large, err := v.opener.largeModel()
	if err != nil || !large {
		return p, wait, errors.Join(err, unlessNil(err, wait))
	}
	folder, closeFolder, err := v.opener.openVersions(filepath.Join(v.cfg.Folder(), "scores"))
	if err != nil {
		return nil, nil, errors.Join(err, wait())
	}
	p.folder = folder
	return p, func() error { defer closeFolder(); return wait() }, nil
}

// unlessNil calls end after an error.
func unlessNil(err error, end func() error) error {
	if err == nil {
		return nil
	}
	return end()
}
