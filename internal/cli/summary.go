package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
)

// finalReport scores the last version on the test split, which nothing before has touched, with and without
// the tool, draws the learning curve, and says where everything is.
func (s *session) finalReport(ctx context.Context, run *streams.Run, c *course, dir string, took time.Duration) error {
	m, err := run.LatestManifest(ctx)
	if err != nil {
		return err
	}
	policy, wait, err := s.newLastSampler(ctx, c)
	if err != nil {
		return err
	}
	defer wait() //nolint:errcheck // its scores are in hand
	if err := policy.bring(ctx, s, run, c, m); err != nil {
		return err
	}
	scores, err := testScores(ctx, s, c, policy)
	if errors.Is(err, errNoQuestion) {
		fmt.Fprintf(s.out, "\nno test score: %v\n", err)
	} else if err != nil {
		return err
	}
	values := map[string]float64{metrics.TimeTotal.Name: took.Seconds()}
	if len(scores) > 0 {
		fmt.Fprintf(s.out, "\ntest split, %d questions%s (version %d)\n\n%s", scores[0].report.N, c.heldOut(), m.Version, scoreTable(scores, c.about))
	}
	for _, sc := range scores {
		values[sc.key] = sc.report.ExactMatch
	}
	written := filepath.Join(dir, "metrics.jsonl")
	records, err := report.ReadMetrics(written)
	if err != nil {
		return err
	}
	if len(scores) > 0 {
		fmt.Fprint(s.out, learntByHeart(scores[0].report.ExactMatch, records))
	}
	book, err := report.NewRecorder(written)
	if err != nil {
		return err
	}
	defer book.Close()
	if err := book.Append(report.Record{
		At: time.Now().UTC(), Type: report.Tested, PolicyVersion: m.Version, Step: m.Version, Metrics: values,
	}); err != nil {
		return err
	}
	curves := []report.Series{
		report.Collect(records, string(schemas.EventEvaluated), metrics.EvalExactMatch.Name, "exact match, validation, greedy"),
		report.Collect(records, string(schemas.EventStepDone), metrics.RewardComponent.Of(producers.ComponentExactMatch), "exact match, groups trained on"),
	}
	picture := filepath.Join(dir, "curve.png")
	if err := report.SaveCurve(picture, s.curveTitle(), "policy version", "exact match", append(curves, s.marks(curves[0], scores, m.Version)...)...); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n%s\n\n", report.Chart(64, 10, coloured(s.out, s.environ), curves...))
	fmt.Fprintf(s.out, "time         %s\ncheckpoint   %s\ncurve        %s\nmetrics      %s\nask it       weir chat%s\nread it      weir audit%s --step %d --text\nsave it      weir model export%s my-model\n",
		took.Round(time.Second), checkpoint.StepDir(s.cfg.Trainer.Checkpoint.Dir, m.Version), picture, written,
		s.named(), s.named(), m.Version, s.exported())
	return nil
}

// exported are the arguments of weir model export that name this run.
func (s *session) exported() string {
	flags := ""
	if s.cfg.Run.Dir != s.reference().Run.Dir {
		flags = " --run.dir " + s.cfg.Run.Dir
	}
	return flags + " " + s.cfg.Run.Name
}

// named are the flags that make a command speak of this run.
func (s *session) named() (flags string) {
	byDefault := s.reference()
	if s.cfg.Run.Name != byDefault.Run.Name {
		flags += " --run.name " + s.cfg.Run.Name
	}
	if s.cfg.Run.Dir != byDefault.Run.Dir {
		flags += " --run.dir " + s.cfg.Run.Dir
	}
	return flags
}

// curveTitle says what run a picture is of.
func (s *session) curveTitle() string {
	c := &s.cfg.Trainer
	return fmt.Sprintf("run %s: %s, %s + %s, eta %d, seed %d", s.cfg.Run.Name, strings.Join(s.cfg.Active(), ", "), c.Advantage.Name, c.Loss.Name, c.Eta, s.cfg.Run.Seed)
}

// marks are the single points of the picture: what the cold start came to, and the test score.
func (s *session) marks(validation report.Series, scores []titled, version int64) (out []report.Series) {
	if len(validation.X) > 0 && validation.X[0] == 0 && s.cfg.Trainer.ColdStart.Steps > 0 {
		out = append(out, report.Series{Name: "after the cold start", X: validation.X[:1], Y: validation.Y[:1], Mark: true})
	}
	if len(scores) > 0 {
		r := scores[0].report
		name := fmt.Sprintf("test, greedy: %.3f ± %.3f", r.ExactMatch, r.StandardError())
		out = append(out, report.Series{Name: name, X: []float64{float64(version)}, Y: []float64{r.ExactMatch}, Mark: true})
	}
	return out
}

// scoreTable has a column for each score and a line for each source of questions, with what kind says of it. It is at
// most 80 columns wide.
func scoreTable(scores []titled, kind func(source string) string) string {
	const first, rest = 32, 15 // columns
	var b strings.Builder
	row := func(title string, cell func(*score) string) {
		line := []string{"  ", fit(title, first)}
		for _, sc := range scores {
			line = append(line, fmt.Sprintf("%-*s", rest, cell(sc.report)))
		}
		b.WriteString(strings.TrimRight(strings.Join(line, ""), " ") + "\n")
	}
	line := []string{"  ", fit("exact match", first)}
	for _, sc := range scores {
		line = append(line, fmt.Sprintf("%-*s", rest, sc.title))
	}
	b.WriteString(strings.TrimRight(strings.Join(line, ""), " ") + "\n")
	row("all", func(r *score) string {
		return fmt.Sprintf("%.3f ± %.3f", r.ExactMatch, r.StandardError())
	})
	sources, widest := slices.Sorted(maps.Keys(scores[0].report.BySource)), 3
	for _, source := range sources {
		if n := utf8.RuneCountInString(report.Plain(source)); n < first/2 {
			widest = max(widest, n)
		}
	}
	for _, source := range sources {
		title := fmt.Sprintf("%-*s %s", widest, report.Plain(source), kind(source))
		row(title, func(r *score) string { return fmt.Sprintf("%.2f", r.BySource[source].ExactMatch) })
	}
	return b.String()
}

// fit makes a text width characters wide.
func fit(text string, width int) string {
	if runes := []rune(text); len(runes) > width-2 {
		text = string(runes[:width-3]) + "…"
	}
	return fmt.Sprintf("%-*s", width, text)
}

// titled is one column of the report.
type titled struct {
	title, key string
	report     *score
}

// testScores asks the test split greedily, at temperature 1, and where there are tools with the tools taken away.
func testScores(ctx context.Context, s *session, c *course, policy *sampler) ([]titled, error) {
	n := s.cfg.Eval.TestQuestions
	asked := []struct {
		title, key string
		question
	}{
		{"greedy", metrics.TestExactMatchGreedy.Name, question{split: tasks.Test, n: n}},
		{"temperature 1", metrics.TestExactMatchSampled.Name, question{split: tasks.Test, n: n, temperature: 1}},
		{"without tool", metrics.TestExactMatchNoTool.Name, question{split: tasks.Test, n: n, noTool: true}},
	}
	if !c.hasTools() {
		asked = asked[:2]
	}
	var out []titled
	for _, q := range asked {
		r, err := policy.score(ctx, s, c, q.question)
		if err != nil {
			return nil, err
		}
		out = append(out, titled{q.title, q.key, r})
	}
	return out, nil
}
