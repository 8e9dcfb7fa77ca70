package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// The files of a report, in the folder of the runs.
const (
	JSONFile     = "report.json"
	MarkdownFile = "report.md"
	PictureFile  = "curves.svg"
)

// Write writes the report as JSON, as Markdown and as a picture into the folder of the runs.
func (r *Report) Write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var page bytes.Buffer
	if err := r.WriteMarkdown(&page); err != nil {
		return err
	}
	files := []struct {
		name string
		text []byte
	}{{JSONFile, append(text, '\n')}, {MarkdownFile, page.Bytes()}}
	if results := r.shownResults(); results != nil {
		files = append(files, struct {
			name string
			text []byte
		}{PictureFile, r.drawCurves(results)})
	}
	for _, f := range files {
		if err := writeFile(filepath.Join(r.Dir, f.name), f.text); err != nil {
			return err
		}
	}
	return nil
}

// shownResults are the results that the picture shows: those of the seeds for testing, where there are any.
func (r *Report) shownResults() *Results {
	if r.Testing != nil {
		return r.Testing
	}
	return r.Tuning
}

// titledResults are the lists of seeds with their titles.
func (r *Report) titledResults() (out []titled) {
	if r.Tuning != nil {
		title := "seeds for tuning " + joinSeeds(r.Tuning.Seeds) + ": settings may have been chosen on them, so they test nothing"
		out = append(out, titled{title, r.Tuning})
	}
	if r.Testing != nil {
		out = append(out, titled{"seeds for testing " + joinSeeds(r.Testing.Seeds), r.Testing})
	}
	return out
}

type titled struct {
	title string
	*Results
}

// heading are the titles of the table's columns.
func (r *Report) heading() []string {
	out := []string{"arm", "done"}
	for _, score := range r.scores {
		out = append(out, fmt.Sprintf("steps to %v", score))
	}
	return append(out, "area", "final, greedy", "final, sampled", "largest fall",
		"P(area > "+r.Baseline+")", "P(final > "+r.Baseline+")", "tokens", "processor")
}

// cells are an arm's row.
func (r *Report) cells(a *ArmResult) []string {
	done := len(a.valuesOf("area"))
	out := []string{a.Arm, fmt.Sprintf("%d/%d", done, len(a.Runs))}
	for _, score := range r.scores {
		out = append(out, a.listRuns(func(run *RunResult) string {
			if steps, ok := run.Steps[fmt.Sprint(score)]; ok {
				return fmt.Sprint(steps)
			}
			return "-"
		}))
	}
	out = append(out, formatEstimate(&a.Area), formatEstimate(&a.Final), formatEstimate(&a.Sampled), a.listRuns(func(run *RunResult) string {
		return fmt.Sprintf("%.2f", run.Scores.Fall)
	}), formatEstimate(a.AreaImproves), formatEstimate(a.FinalImproves))
	if done == 0 {
		return append(out, "", "")
	}
	return append(out, fmt.Sprintf("%.3gM", meanOf(a.valuesOf("tokens"))/1e6), fmt.Sprintf("%.0f s", meanOf(a.valuesOf("processor"))))
}

// listRuns has a word for each finished run, in order of the seeds.
func (a *ArmResult) listRuns(word func(*RunResult) string) string {
	var out []string
	for i := range a.Runs {
		if a.Runs[i].Scores != nil {
			out = append(out, word(&a.Runs[i]))
		}
	}
	return strings.Join(out, " ")
}

func formatEstimate(e *Estimate) string {
	if e == nil || math.IsNaN(e.Value) {
		return ""
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Value, e.Interval.Low, e.Interval.High)
}

func joinSeeds(seeds []int64) string { return strings.Trim(fmt.Sprint(seeds), "[]") }

// openRows has a line for each run that is not finished.
func (r *Results) openRows() (out []string) {
	for _, a := range r.Arms {
		for _, run := range a.Runs {
			switch {
			case run.State == StateFinished:
			case run.Problem != "":
				out = append(out, fmt.Sprintf("%s %s: %s", run.Name, run.State, run.Problem))
			default:
				out = append(out, fmt.Sprintf("%s is %s", run.Name, run.State))
			}
		}
	}
	return out
}

// legend explains the table.
const legend = "area: mean greedy score over the scored versions, on the validation split. final: the last version on the test split. " +
	"Area and final are interquartile means over the seeds with 95 % bootstrap intervals; " +
	"P(...) is the probability of improvement over the baseline (Agarwal et al. 2021). " +
	"Steps to a score and the largest fall are listed by seed; - was not reached. Tokens trained on and processor time are means a run."

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range r.titledResults() {
		fmt.Fprintf(out, "%s: %s\n\n%s\n", r.Name, t.title, strings.Join(r.heading(), "\t"))
		for i := range t.Arms {
			fmt.Fprintln(out, strings.Join(r.cells(&t.Arms[i]), "\t"))
		}
		fmt.Fprintln(out)
		for _, line := range t.openRows() {
			fmt.Fprintln(out, strings.ReplaceAll(line, "\n", "\n  "))
		}
	}
	for _, j := range r.Claims {
		fmt.Fprintf(out, "%s:\t%s\t%s\n", j.Verdict, j.Claim, j.explainMargin())
	}
	for _, line := range r.Warnings {
		fmt.Fprintln(out, "note: "+line)
	}
	fmt.Fprintln(out, "\n"+legend)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// explainMargin has the interval of the margin, or why there is none.
func (j *Judgement) explainMargin() string {
	if j.Why != "" {
		return j.Why
	}
	end := func(v *float64, infinite string) string {
		if v == nil {
			return infinite
		}
		return fmt.Sprintf("%.4g", *v)
	}
	return fmt.Sprintf("margin [%s, %s], %d seeds", end(j.Low, "-inf"), end(j.High, "inf"), len(j.Seeds))
}

// WriteMarkdown writes the report as a part of a page.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	for _, t := range r.titledResults() {
		fmt.Fprintf(&b, "**%s**, %s.\n\n", r.Name, t.title)
		b.WriteString(markdownRow(r.heading()))
		b.WriteString(strings.Repeat("|---", len(r.heading())) + "|\n")
		for i := range t.Arms {
			b.WriteString(markdownRow(r.cells(&t.Arms[i])))
		}
		b.WriteString("\n")
		for _, line := range t.openRows() {
			fmt.Fprintf(&b, "- `%s`\n", strings.NewReplacer("\n", " / ", "`", "'").Replace(line))
		}
	}
	if len(r.Claims) > 0 {
		b.WriteString("\n| claim | verdict | margin |\n|---|---|---|\n")
		for _, j := range r.Claims {
			b.WriteString(markdownRow([]string{j.Claim, j.Verdict, j.explainMargin()}))
		}
	}
	b.WriteString("\n")
	for _, line := range r.Warnings {
		b.WriteString("- " + line + "\n")
	}
	fmt.Fprintf(&b, "\n%s\n\n![curves](%s)\n", legend, PictureFile)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func markdownRow(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
