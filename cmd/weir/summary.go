package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// finalReport scores the last version on the test split, which nothing before has touched, with and without
// the tool, draws the learning curve, and says where everything is.
func (s *session) finalReport(ctx context.Context, run *streams.Run, t *task, dir string, took time.Duration) error {
	m, err := run.LatestManifest(ctx)
	if err != nil {
		return err
	}
	model, weights, err := s.loadVersion(ctx, run, m)
	if err != nil {
		return err
	}
	policy, wait := newSampler(ctx, s)
	defer wait() //nolint:errcheck // its scores are in hand
	if err := policy.use(ctx, m.Version, model, weights); err != nil {
		return err
	}
	scores, err := testScores(ctx, s, t, policy)
	if errors.Is(err, errNoQuestion) {
		fmt.Fprintf(s.out, "\nno test score: %v\n", err)
	} else if err != nil {
		return err
	}
	values := map[string]float64{"time/total": took.Seconds()}
	about := ""
	if s.cfg.Task.Name == countries.Name {
		about = " about countries and regions that no training question names"
	}
	for i, sc := range scores {
		if i == 0 {
			fmt.Fprintf(s.out, "\ntest split, %d questions%s (version %d)\n", sc.report.N, about, m.Version)
		}
		fmt.Fprintf(s.out, "  %-36s %.3f ± %.3f   %s\n", sc.title, sc.report.ExactMatch, sc.report.StandardError(), bySource(sc.report))
		values[sc.key] = sc.report.ExactMatch
	}
	metrics := filepath.Join(dir, "metrics.jsonl")
	records, err := report.ReadMetrics(metrics)
	if err != nil {
		return err
	}
	if len(scores) > 0 {
		fmt.Fprint(s.out, learntByHeart(scores[0].report.ExactMatch, records))
	}
	book, err := report.NewRecorder(metrics)
	if err != nil {
		return err
	}
	defer book.Close()
	if err := book.Append(report.Record{
		At: time.Now().UTC(), Type: "tested", PolicyVersion: m.Version, Step: m.Version, Metrics: values,
	}); err != nil {
		return err
	}
	curves := []report.Series{
		report.Collect(records, string(schemas.EventEvaluated), report.KeyExactMatch, "exact match, validation, greedy"),
		report.Collect(records, string(schemas.EventStepDone), "reward/component/"+producers.ComponentExactMatch, "exact match, groups trained on"),
	}
	picture := filepath.Join(dir, "curve.png")
	if err := report.SaveCurve(picture, "run "+s.cfg.Run.Name, "policy version", "exact match", curves...); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n%s\n\n", report.Chart(64, 10, coloured(s.out, s.environ), curves...))
	fmt.Fprintf(s.out, "time         %s\ncheckpoint   %s\ncurve        %s\nmetrics      %s\nask it       weir chat --run.name %s --run.dir %s\n",
		took.Round(time.Second), checkpoint.StepDir(s.cfg.Trainer.Checkpoint.Dir, m.Version), picture, metrics,
		s.cfg.Run.Name, s.cfg.Run.Dir)
	return nil
}

// learntByHeart says, where no held-out answer is right though most in training are, why that may be.
func learntByHeart(tested float64, records []report.Record) string {
	trained := report.Collect(records, string(schemas.EventStepDone), "reward/component/"+producers.ComponentExactMatch, "")
	if tested > 0 || len(trained.Y) == 0 || trained.Y[len(trained.Y)-1] < 0.5 {
		return ""
	}
	return fmt.Sprintf("  no held-out answer is right, and %.0f %% in training: the policy has learnt its questions by heart. One that\n"+
		"  starts from nothing knows only the words that it was trained on: give more questions and demonstrations with the same\n"+
		"  words, or start from a model that knows them, with --model.folder\n", 100*trained.Y[len(trained.Y)-1])
}

// titled is one line of the report.
type titled struct {
	title, key string
	report     *producers.EvalReport
}

// testScores asks the test split greedily, at temperature 1, and with the tool taken away.
func testScores(ctx context.Context, s *session, t *task, policy *sampler) ([]titled, error) {
	n := s.cfg.Eval.TestQuestions
	out := []titled{
		{"exact match, greedy", "test/exact_match_greedy", nil},
		{"exact match, sampled, temperature 1", "test/exact_match_sampled", nil},
		{"control: greedy, tool disabled", "test/exact_match_no_tool", nil},
	}
	for i, q := range []question{
		{split: tasks.Test, n: n}, {split: tasks.Test, n: n, temperature: 1}, {split: tasks.Test, n: n, noTool: true},
	} {
		var err error
		if out[i].report, err = policy.score(ctx, s, t, q); err != nil {
			return nil, err
		}
	}
	return out, nil
}
