package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// printFinalReport prints the scores and the learning curve of a run that is done, and says where everything is.
func (a *app) printFinalReport(s *assembly.Run, c *assembly.Course, r *assembly.FinalReport) {
	if r.NoQuestion != nil {
		fmt.Fprintf(a.out, "\nno test score: %v\n", r.NoQuestion)
	}
	if len(r.Scores) > 0 {
		fmt.Fprintf(a.out, "\ntest split, %d questions%s (version %d)\n\n%s", r.Scores[0].Report.N, r.HeldOut, r.Version, scoreTable(r.Scores, c.About))
	}
	fmt.Fprint(a.out, r.LearntByHeart)
	if r.Picture == "" {
		return // the error says why
	}
	run := a.runFlags(s)
	fmt.Fprintf(a.out, "\n%s\n\n", report.Chart(64, 10, showsColour(a.out, a.environ), r.Curves...))
	last := checkpoint.StepDir(s.Config.Trainer.Checkpoint.Dir, r.Version)
	ask := "ask it       weir chat" + run
	if name, dir := c.RecordedRun(s.Config); name != "" { // which has the questions
		ask = "score it     weir eval" + a.runFlagsOf(name, dir) + " --checkpoint " + last
	}
	fmt.Fprintf(a.out, "time         %s\ncheckpoint   %s\ncurve        %s\nmetrics      %s\n%s\n",
		r.Took.Round(time.Second), last, r.Picture, r.Written, ask)
	fmt.Fprintf(a.out, "read it      weir audit%s --step %d --text\nsave it      weir model export%s my-model\n",
		run, r.Version, a.exportArguments(s))
}

// exportArguments are the arguments of weir model export that name this run.
func (a *app) exportArguments(s *assembly.Run) string {
	flags := ""
	if s.Config.Run.Dir != a.keys().known.Run.Dir {
		flags = " --run.dir " + s.Config.Run.Dir
	}
	return flags + " " + s.Config.Run.Name
}

// runFlags are the flags that make a command speak of this run.
func (a *app) runFlags(s *assembly.Run) string {
	return a.runFlagsOf(s.Config.Run.Name, s.Config.Run.Dir)
}

// runFlagsOf are the flags that make a command speak of a run by its name, in a folder of runs.
func (a *app) runFlagsOf(name, dir string) (flags string) {
	byDefault := a.keys().known
	if name != byDefault.Run.Name {
		flags += " --run.name " + name
	}
	if dir != byDefault.Run.Dir {
		flags += " --run.dir " + dir
	}
	return flags
}

// scoreTable has a column for each score and a line for each source of questions, each cell as kind formats it. It is at most 80 columns
// wide.
func scoreTable(scores []assembly.TitledScore, kind func(source string) string) string {
	const first, rest = 32, 15 // columns
	var b strings.Builder
	row := func(title string, cell func(*assembly.Score) string) {
		line := []string{"  ", fitWidth(title, first)}
		for _, sc := range scores {
			line = append(line, fmt.Sprintf("%-*s", rest, cell(sc.Report)))
		}
		b.WriteString(strings.TrimRight(strings.Join(line, ""), " ") + "\n")
	}
	line := []string{"  ", fitWidth("exact match", first)}
	for _, sc := range scores {
		line = append(line, fmt.Sprintf("%-*s", rest, sc.Title))
	}
	b.WriteString(strings.TrimRight(strings.Join(line, ""), " ") + "\n")
	row("all", func(r *assembly.Score) string {
		return fmt.Sprintf("%.3f ± %.3f", r.ExactMatch, r.StandardError())
	})
	sources, widest := slices.Sorted(maps.Keys(scores[0].Report.BySource)), 3
	for _, source := range sources {
		if n := utf8.RuneCountInString(report.Plain(source)); n < first/2 {
			widest = max(widest, n)
		}
	}
	if len(sources) == 1 && sources[0] == "all" {
		return b.String() // a task without kinds of questions: the row stands above
	}
	for _, source := range sources {
		title := fmt.Sprintf("%-*s %s", widest, report.Plain(source), kind(source))
		row(title, func(r *assembly.Score) string { return fmt.Sprintf("%.2f", r.BySource[source].ExactMatch) })
	}
	return b.String()
}

// fitWidth makes a text width characters wide.
func fitWidth(text string, width int) string {
	if runes := []rune(text); len(runes) > width-2 {
		text = string(runes[:width-3]) + "…"
	}
	return fmt.Sprintf("%-*s", width, text)
}
