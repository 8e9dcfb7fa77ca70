package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// FinalReport is the result of a run, as far as it is known.
type FinalReport struct {
	Took    time.Duration
	Version int64
	// Scores are the scores on the test split; noQuestion is why there are none.
	Scores     []TitledScore
	NoQuestion error
	// HeldOut describes the questions, LearntByHeart says why far fewer of them than in training may be answered rightly; "" where they are
	// not.
	HeldOut, LearntByHeart string
	// Record is the last of the run's numbers.
	Record report.Record
	// Curves are the scores over the versions. written and picture are the files of the numbers and of the curves; "" before they
	// are written.
	Curves           []report.Series
	Written, Picture string
}

// lastRecord is the last record of a run's numbers.
func (r *FinalReport) lastRecord() report.Record {
	values := map[string]float64{metrics.TimeTotal.Name: r.Took.Seconds()}
	for _, sc := range r.Scores {
		values[sc.Key] = sc.Report.ExactMatch
	}
	return report.Record{At: time.Now().UTC(), Type: report.Tested, PolicyVersion: r.Version, Step: r.Version, Metrics: values}
}

// Report scores the last version on the test split, which nothing before has touched, with and without the tools, and draws the learning
// curve. After an error the report has the results so far.
func (r *LocalRun) Report(ctx context.Context, took time.Duration) (*FinalReport, error) {
	out := &FinalReport{Took: took, HeldOut: r.Course.heldOut()}
	m, err := r.lastManifest(ctx)
	if err != nil {
		return out, err
	}
	out.Version = m.Version
	cfg := r.process.Config
	out.Scores, err = r.testLast(ctx, m)
	if errors.Is(err, errNoQuestion) {
		out.NoQuestion, err = err, nil
	}
	if err != nil {
		return out, err
	}
	written := filepath.Join(r.Dir, MetricsFile)
	records, err := report.ReadMetrics(written)
	if err != nil {
		return out, err
	}
	out.Took = cmp.Or(reportedTime(records, out.Version), out.Took)
	if len(out.Scores) > 0 {
		out.LearntByHeart = learntByHeart(out.Scores[0].Report.ExactMatch, records)
	}
	out.Record = out.lastRecord()
	if err := appendRecord(written, out.Record); err != nil {
		return out, err
	}
	out.Written = written
	out.Curves = []report.Series{
		report.Collect(records, string(schemas.EventEvaluated), metrics.EvalExactMatch.Name, "exact match, validation, greedy"),
		report.Collect(records, string(schemas.EventStepDone), metrics.RewardComponent.Of(producers.ComponentExactMatch), "exact match, groups trained on"),
	}
	picture := filepath.Join(r.Dir, "curve.png")
	drawn := append(out.Curves, curveMarks(cfg, out.Curves[0], out.Scores, out.Version)...)
	if err := report.SaveCurve(picture, curveTitle(cfg), "policy version", "exact match", drawn...); err != nil {
		return out, err
	}
	out.Picture = picture
	return out, nil
}

// lastManifest is the version that the training ended with. Newer versions are of steps before the run went back.
func (r *LocalRun) lastManifest(ctx context.Context) (*schemas.Manifest, error) {
	control, err := r.run.Control(ctx)
	if err != nil {
		return nil, err
	}
	return r.run.Manifest(ctx, control.PolicyVersion)
}

// testLast scores the last version on the test split. The error is errNoQuestion where there is no question.
func (r *LocalRun) testLast(ctx context.Context, m *schemas.Manifest) ([]TitledScore, error) {
	if r.Course.recording != nil {
		return nil, errNoQuestion // and nothing that samples is started
	}
	cfg := r.process.Config
	opener := samplerOpener{cfg, r.Course, r.process.Log}
	policy, wait, err := opener.newLastSampler(ctx)
	if err != nil {
		return nil, err
	}
	defer wait() //nolint:errcheck // its scores are in hand
	if err := policy.bringVersion(ctx, versionSource{run: r.run, course: r.Course, weights: cfg.Weights}, m); err != nil {
		return nil, err
	}
	return testScores(ctx, cfg, r.Course, policy)
}

// reportedTime is how long a run took whose last version was reported before: to report it again takes seconds, and no training. 0 is no
// earlier report.
func reportedTime(records []report.Record, version int64) time.Duration {
	for _, r := range records {
		if r.Type == report.Tested && r.PolicyVersion == version {
			return time.Duration(metrics.TimeTotal.In(r.Metrics) * float64(time.Second))
		}
	}
	return 0
}

// appendRecord writes a record at the end of a file.
func appendRecord(file string, r report.Record) error {
	book, err := report.NewRecorder(file)
	if err != nil {
		return err
	}
	defer book.Close()
	return book.Append(r)
}

// curveTitle names the run of a picture.
func curveTitle(cfg *config.Config) string {
	c := &cfg.Trainer
	return fmt.Sprintf("run %s: %s, %s + %s, eta %d, seed %d", cfg.Run.Name, strings.Join(cfg.Active(), ", "), c.Advantage.Name, c.Loss.Name, c.Eta, cfg.Run.Seed)
}

// curveMarks are the single points of the picture: the score after the cold start, and the test score.
func curveMarks(cfg *config.Config, validation report.Series, scores []TitledScore, version int64) (out []report.Series) {
	if len(validation.X) > 0 && validation.X[0] == 0 && cfg.Trainer.ColdStart.Steps > 0 {
		out = append(out, report.Series{Name: "after the cold start", X: validation.X[:1], Y: validation.Y[:1], Mark: true})
	}
	if len(scores) > 0 {
		r := scores[0].Report
		name := fmt.Sprintf("test, greedy: %.3f ± %.3f", r.ExactMatch, r.StandardError())
		out = append(out, report.Series{Name: name, X: []float64{float64(version)}, Y: []float64{r.ExactMatch}, Mark: true})
	}
	return out
}

// TitledScore is a column of the report.
type TitledScore struct {
	// Title heads the column, Key is that of the score in the run's numbers.
	Title, Key string
	Report     *Score
}

// testScores asks the test split greedily, at temperature 1, and where there are tools with the tools taken away.
func testScores(ctx context.Context, cfg *config.Config, c *Course, policy *Sampler) ([]TitledScore, error) {
	n := cfg.Eval.TestQuestions
	asked := []struct {
		title, key string
		Question
	}{
		{"greedy", metrics.TestExactMatchGreedy.Name, Question{Split: tasks.Test, N: n}},
		{"temperature 1", metrics.TestExactMatchSampled.Name, Question{Split: tasks.Test, N: n, Temperature: 1}},
		{"without tool", metrics.TestExactMatchNoTool.Name, Question{Split: tasks.Test, N: n, NoTool: true}},
	}
	if !c.hasTools() {
		asked = asked[:2]
	}
	var out []TitledScore
	for _, q := range asked {
		r, err := policy.Score(ctx, cfg, c, q.Question)
		if err != nil {
			return nil, err
		}
		out = append(out, TitledScore{q.title, q.key, r})
	}
	return out, nil
}
